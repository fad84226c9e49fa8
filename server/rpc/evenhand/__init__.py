"""The services of `evenhand.v1`: inspection, explanation, configuration and watching, on top of the core's reports."""
