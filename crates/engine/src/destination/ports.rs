//! Which ports a push may use: 80, 443 and what lies above the system ports, except the ports of
//! services that a POST could hurt.

use super::Refusal;

/// Decides about a port for a host that no operator vouches for.
pub(super) fn check(port: u16, allowed: &[u16]) -> Result<(), Refusal> {
    match port {
        0 => Err(Refusal::PortZero),
        _ if allowed.contains(&port) => Ok(()),
        80 | 443 => Ok(()),
        // Low ports belong to other protocols, which a POST could be made to speak.
        1..1024 => Err(Refusal::Port(port)),
        1024.. => match service(port) {
            Some(service) => Err(Refusal::ServicePort(port, service)),
            None => Ok(()),
        },
    }
}

fn service(port: u16) -> Option<&'static str> {
    SERVICES.iter().find(|(known, _)| *known == port).map(|(_, service)| *service)
}

/// Ports from 1024 up whose usual service should never be sent a webhook by a stranger. Three
/// kinds: services that take orders over HTTP (Docker, Kubernetes, etcd, Consul, Elasticsearch …);
/// services that read the lines of a request as commands of their own and skip what they do not
/// understand (Redis, memcached, mail, chat, printers …); and databases, brokers and desktops, where
/// even a refused connection is a probe that this gateway should not make for somebody else.
///
/// Ports that web servers commonly use (3000, 5000, 8000, 8080, 8443, 9000 …) are not here, whatever
/// else sometimes listens there.
const SERVICES: [(u16, &str); 60] = [
    (1433, "SQL Server"),
    (1521, "Oracle Database"),
    (1723, "PPTP"),
    (1883, "MQTT"),
    (2049, "NFS"),
    (2181, "ZooKeeper"),
    (2375, "Docker"),
    (2376, "Docker"),
    (2377, "Docker Swarm"),
    (2379, "etcd"),
    (2380, "etcd"),
    (2525, "mail"),
    (3268, "LDAP"),
    (3269, "LDAP"),
    (3306, "MySQL"),
    (3389, "remote desktops"),
    (4190, "mail filters"),
    (4222, "NATS"),
    (4646, "Nomad"),
    (5060, "SIP"),
    (5061, "SIP"),
    (5432, "PostgreSQL"),
    (5671, "AMQP"),
    (5672, "AMQP"),
    (5900, "VNC"),
    (5901, "VNC"),
    (5984, "CouchDB"),
    (5985, "Windows remote management"),
    (5986, "Windows remote management"),
    (6000, "X11"),
    (6379, "Redis"),
    (6443, "Kubernetes"),
    (6665, "IRC"),
    (6666, "IRC"),
    (6667, "IRC"),
    (6668, "IRC"),
    (6669, "IRC"),
    (6697, "IRC"),
    (8200, "Vault"),
    (8300, "Consul"),
    (8500, "Consul"),
    (8501, "Consul"),
    (8883, "MQTT"),
    (9042, "Cassandra"),
    (9092, "Kafka"),
    (9100, "printers"),
    (9160, "Cassandra"),
    (9200, "Elasticsearch"),
    (9300, "Elasticsearch"),
    (10250, "the kubelet"),
    (10255, "the kubelet"),
    (11211, "memcached"),
    (15672, "RabbitMQ"),
    (16379, "Redis"),
    (26379, "Redis"),
    (27017, "MongoDB"),
    (27018, "MongoDB"),
    (27019, "MongoDB"),
    (61613, "ActiveMQ"),
    (61616, "ActiveMQ"),
];
