"""The services of `evenhand.v1`: inspection, explanation, configuration and watching, over the core's reports."""
