"""What crosses the wire: the models of requests and answers, importing nothing of ours."""
