"""Files of asks that nobody submitted: pods and workloads of Kubernetes, or asks in our own short form."""
