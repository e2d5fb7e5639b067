"""A durable commit log that speaks plain HTTP.

In the wheel the packages of the checkout lie below this one, so that an environment of other
programs has one name of ours: `tidelog.engine` is the library, `tidelog.app` the service,
`tidelog.schemas` its models. A checkout has them side by side.
"""
