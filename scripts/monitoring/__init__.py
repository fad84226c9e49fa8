"""Dashboards and alert rules of deploy/monitoring: `python -m scripts.monitoring` writes the files that are made from others."""
