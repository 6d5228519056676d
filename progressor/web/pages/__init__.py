"""The pages of the console, a module each, and what their forms do."""
