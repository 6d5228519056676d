"""HttpClient: the methods of Client over HTTP."""
