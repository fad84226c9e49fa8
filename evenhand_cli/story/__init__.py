"""Stories: a configuration and what happens, step by step on simulated time, with the core's decisions and expectations."""
