"""Pure translation: Kubernetes objects to the shim's own values, and those to the wire and back."""
