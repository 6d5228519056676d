"""Apps: namespaces with the resources that their handlers take."""
