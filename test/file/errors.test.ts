/** The mistakes in state files, and all that is said about each. */
import t from 'tap';
import { fileWith, inOnePiece, lines, problemsOf, warningsOf } from '../support/file-rig.ts';

const NAME_RULE = "(letters, digits, '-', '_' and '.'; the first and the last a letter or digit)";

/** What is wrong, the text of a file or what follows the name of its one service, and after `>` the problems. */
const VALUES = `
== service: numbers that are no ports
ports:
- {name: a, port: 0, nodeport: 65536}
- {name: c, port: 80.5}
- {name: d, port: "80"}
- {name: e, port: }
- {name: f}
- 80
> 5:23: services[0].service.ports[0].port: 0 is not a port (1 to 65535)
> 5:36: services[0].service.ports[0].nodeport: 65536 is not a port (0 to 65535)
> 6:23: services[0].service.ports[1].port: 80.5 is not a port (1 to 65535)
> 7:23: services[0].service.ports[2].port: "80" is not a port (1 to 65535); remove the quotes
> 8:17: services[0].service.ports[3].port: there is no value; it must be a port (1 to 65535)
> 9:7: services[0].service.ports[4]: 'port' is missing
> 10:7: services[0].service.ports[5]: 80 is not a port of a service
== service: a protocol, and an affinity time
ports: [{port: 2, protocol: 0}]
sessionaffinity: {clientip: {timeoutseconds: 0}}
> 4:33: services[0].service.ports[0].protocol: 0 is not a protocol (TCP, UDP, SCTP, 1, 2, 3)
> 5:50: services[0].service.sessionaffinity.clientip.timeoutseconds: 0 is not an affinity time in seconds (1 to 86400)
== service: addresses and networks; schema.test.ts has more of them
ips:
  clusterips: {v4: [10.1, 167772161]}
  externalips: {v6: [10.0.0.1, "::ffff:10.0.0.1", "fe80::1%eth0"]}
ipfilters:
- sourceranges: [10.0.0.0/8, 10.0.0.0]
> 5:25: services[0].service.ips.clusterips.v4[0]: 10.1 is not an IPv4 address
> 5:31: services[0].service.ips.clusterips.v4[1]: 167772161 is not an IPv4 address
> 6:26: services[0].service.ips.externalips.v6[0]: "10.0.0.1" is not an IPv6 address; it belongs under 'v4'
> 6:36: services[0].service.ips.externalips.v6[1]: "::ffff:10.0.0.1" is not an IPv6 address: it is an IPv4 address; write that under 'v4'
> 6:55: services[0].service.ips.externalips.v6[2]: "fe80::1%eth0" is not an IPv6 address: it has a zone
> 8:34: services[0].service.ipfilters[0].sourceranges[1]: "10.0.0.0" is not a network (CIDR)
== file: names
services:
- service: {name: a/b}
- service: {name: ""}
- service: {name: 7}
- service: {namespace: a b, name: -c}
- service: {name: ${'x'.repeat(254)}}
> 2:19: services[0].service.name: "a/b" is not a name ${NAME_RULE}
> 3:19: services[1].service.name: "" is not a name ${NAME_RULE}
> 4:19: services[2].service.name: 7 is not a name; put it in quotes: "7"
> 5:24: services[3].service.namespace: "a b" is not a namespace ${NAME_RULE}
> 5:35: services[3].service.name: "-c" is not a name ${NAME_RULE}
> 6:19: services[4].service.name: "${'x'.repeat(57)}..." is too long for a name (at most 253 characters)
== service: values of other types
type: Clusterip
labels: [a]
annotations: {a: 1, b: true, c: , d: [x]}
ports: {port: 80}
ips: 10.0.0.1
sessionaffinity: ClientIP
> 4:11: services[0].service.type: "Clusterip" is not a service type; did you mean ClusterIP?
> 5:13: services[0].service.labels: a list is not a map of text to text
> 6:22: services[0].service.annotations.a: 1 is not text; put it in quotes: "1"
> 6:28: services[0].service.annotations.b: true is not text; put it in quotes: "true"
> 6:34: services[0].service.annotations.c: there is no value; it must be text
> 6:42: services[0].service.annotations.d: a list is not text
> 7:12: services[0].service.ports: a map is not a list of ports
> 8:10: services[0].service.ips: "10.0.0.1" is not a map with the addresses of a service
> 9:22: services[0].service.sessionaffinity: "ClientIP" is not a session affinity, such as {clientip: {timeoutseconds: 10800}}
== service: duplicate ports
ports:
- {name: a, port: 1}
- {name: a, port: 2}
- {port: 3}
- {port: 4}
- {name: b, port: 3, protocol: TCP}
- {name: c, port: 3, protocol: UDP}
> 6:14: services[0].service.ports[1].name: duplicate port name 'a' (see ports[0])
> 8:7: services[0].service.ports[3]: more than one port without a name (ports[2] has none either)
> 9:23: services[0].service.ports[4].port: duplicate port TCP 3 (see ports[2])
== file: keys that stand too high or too low
services:
- service:
    name: web
    clusterips: {v4: [10.0.0.1]}
    ips: {v4: [10.0.0.1]}
    ports: [{port: 80, sessionaffinity: null}]
    endpoints: []
  type: ClusterIP
  endpoints: [{podname: a, ips: null, endpoint: {topology: null}, labels: {}}]
> 4:5: services[0].service.clusterips: unknown key 'clusterips'; it belongs under 'ips'
> 5:11: services[0].service.ips.v4: unknown key 'v4'; it belongs under 'clusterips' or 'externalips' or 'loadbalancerips'
> 6:24: services[0].service.ports[0].sessionaffinity: unknown key 'sessionaffinity'; it belongs beside 'ports'
> 7:5: services[0].service.endpoints: unknown key 'endpoints'; it belongs beside 'service'
> 8:3: services[0].type: unknown key 'type'; it belongs under 'service'
> 9:28: services[0].endpoints[0].ips: unknown key 'ips'; it belongs under 'endpoint'
> 9:50: services[0].endpoints[0].endpoint.topology: unknown key 'topology'; it belongs beside 'endpoint'
> 9:67: services[0].endpoints[0].labels: unknown key 'labels'
== file: values of the wrong form, with the right one
services:
- service:
    name: web
    ips: {clusterips: {v4: 10.0.0.1}, externalips: 10.0.0.1, loadbalancerips: {v6: [fd00::]}}
    ports: [{port: 80, targetport: http}]
    ipfilters: [{sourceranges: 10.0.0.0/8}]
  endpoints: [{conditions: true, topology: n1, hints: [east]}]
> 4:28: services[0].service.ips.clusterips.v4: "10.0.0.1" is not a list of IPv4 addresses, such as [10.96.0.10]
> 4:52: services[0].service.ips.externalips: "10.0.0.1" is not a set of addresses by family, such as {v4: [10.96.0.10]}
> 4:85: services[0].service.ips.loadbalancerips.v6[0]: a map is not an IPv6 address; put it in quotes
> 5:36: services[0].service.ports[0].targetport: "http" is not a port (0 to 65535); a name belongs under 'targetportname'
> 6:32: services[0].service.ipfilters[0].sourceranges: "10.0.0.0/8" is not a list of networks, such as [10.0.0.0/8]
> 7:28: services[0].endpoints[0].conditions: true is not a map of conditions, such as {ready: true}
> 7:44: services[0].endpoints[0].topology: "n1" is not a topology, such as {node: node-1, zone: east}
> 7:55: services[0].endpoints[0].hints: a list is not a map of topology hints, such as {zones: [east]}
== file: endpoints
services:
- service: {name: web, ports: [{port: 80}]}
  endpoints:
  - topology: {hostname: n1}
    hints: {zones: north}
    endpoint: {ips: [10.0.0.1], portoverrides: [{name: http}, {port: 0}]}
> 4:16: services[0].endpoints[0].topology.hostname: unknown key 'hostname'
> 5:20: services[0].endpoints[0].hints.zones: "north" is not a list of zones, such as [east]
> 6:21: services[0].endpoints[0].endpoint.ips: a list is not a set of addresses by family, such as {v4: [10.96.0.10]}
> 6:49: services[0].endpoints[0].endpoint.portoverrides[0]: 'port' is missing
> 6:70: services[0].endpoints[0].endpoint.portoverrides[1].port: 0 is not a port (1 to 65535)
== file: duplicate port override
services:
- service: {name: web, ports: [{port: 80}]}
  endpoints: [{endpoint: {portoverrides: [{port: 1}, {port: 2}]}}]
> 3:54: services[0].endpoints[0].endpoint.portoverrides[1].name: duplicate port override ''
== file: overrides of unknown ports, and endpoints of another service
services:
- service:
    name: web
    ports: [{name: http, port: 80, targetportname: t-http}]
  endpoints:
  - endpoint: {portoverrides: [{name: http, port: 1}, {name: t-http, port: 2}, {name: x, port: 3}]}
    servicename: other
    namespace: default
~ 6:87: services[0].endpoints[0].endpoint.portoverrides[2].name: the service has no port 'x'; the override has no effect
~ 7:18: services[0].endpoints[0].servicename: 'other' is ignored; an endpoint belongs to the service above it (web)
== file: items that are no services
services:
- name: web
- endpoints: []
- ~
- web
> 2:3: services[0]: 'service' is missing
> 2:3: services[0].name: unknown key 'name'; it belongs under 'service'
> 3:3: services[1]: 'service' is missing
> 4:3: services[2]: there is no value; it must be a service with its endpoints
> 5:3: services[3]: "web" is not a service with its endpoints
== file: duplicate services
services:
- service: {name: web}
- service: {name: other}
- service: {name: web, namespace: default}
- service: {name: web, namespace: else}
> 4:19: services[2].service.name: duplicate service default/web (see services[0] in line 2)
== file: nodes, and an unknown key beside them
nodes:
- name: n1
- {}
- name: n2
  topology: {node: n2, zone: 1}
services: []
node: []
> 3:3: nodes[1]: 'name' is missing
> 5:30: nodes[2].topology.zone: 1 is not text; put it in quotes: "1"
> 7:1: node: unknown key 'node'; did you mean 'nodes'?
== file: a problem behind the services
services:
- service: {name: web}
# end
nodes:
- name: n1
- name: n1
> 6:9: nodes[1].name: duplicate node 'n1' (see nodes[0])
== file: no services
nodes: []
> 1:1: 'services' is missing
== file: services without a value
nodes: []
services:
> 2:1: services: there is no value; it must be a list of services
== file: a list
- service: {name: web}
> 1:1: a state file is a map with the key \`services\`
== file: a problem behind an alias
nodes: &all
- {name: n1, topology: &t {node: 5}}
- {name: n2, topology: *t}
services: []
> 2:34: nodes[0].topology.node: 5 is not text; put it in quotes: "5"
> 2:34: nodes[1].topology.node: 5 is not text; put it in quotes: "5"
== file: a merge key
services: []
<<: {nodes: []}
> 2:1: ["<<"]: unknown key '<<'
== file: a key that is a list
services: []
? [a]
: b
> 2:3: a key must be text
== file: a key that JavaScript knows
services: []
__proto__: {}
> 2:1: __proto__: unknown key '__proto__'
== service: keys in quotes
annotations: {a/b: 1, "": 2, c-d: 3, "1": 4}
> 4:24: services[0].service.annotations["a/b"]: 1 is not text; put it in quotes: "1"
> 4:31: services[0].service.annotations[""]: 2 is not text; put it in quotes: "2"
> 4:39: services[0].service.annotations.c-d: 3 is not text; put it in quotes: "3"
> 4:47: services[0].service.annotations["1"]: 4 is not text; put it in quotes: "4"
== service: a very long key
${'k'.repeat(100_000)}: 1
> 4:5: services[0].service["${'k'.repeat(57)}..."]: unknown key '${'k'.repeat(57)}...'
== file: duplicate keys in JSON
{"services": [{"service": {"name": "a", "name": "b"}}]}
> 1:41: duplicate key 'name'
== file: duplicate services in JSON
{"services": [], "services": []}
> 1:18: duplicate key 'services'
`;

/** The same, where the position or the message depends on how the file is cut into services. */
const SYNTAX = `
== service: a duplicate key
mapip: true
mapip: false
> 5:5: services[0]: duplicate key 'mapip'
== service: a quote that is not closed
type: "ClusterIP
> 5:1: services[0]: a quote or bracket is not closed before this, or the indentation is wrong
== service: a tab
\tports: []
> 4:5: services[0]: a tab where only spaces may be
== file: a line that is indented too far
services:
- service:
    name: web
     type: ClusterIP
> 4:10: services[0]: wrong indentation of a key, or a ': ' too many in a text without quotes
== file: a line that is not indented enough
services:
- service:
    name: web
 endpoints: []
> 4:2: services[0]: wrong indentation: the items of a list start in one column
== service: ':' without a space
mapip:true
> 4:15: services[0]: this is neither a key with ': ' nor part of the line before; is the indentation right?
== service: a list and a map that are not closed
ips: {clusterips: {v4: [10.0.0.1}}
> 4:37: services[0]: a comma is missing before this, or a '[' or '{' is not closed
== service: an unknown tag
type: !kind ClusterIP
> 4:11: services[0]: no tag but !!str is supported
== file: two documents
services: []
---
services: []
> 3:1: a second document begins here; a state file has one
== file: two documents with services in block style
services:
- service: {name: a}
---
services:
- service: {name: b}
> 4:1: a second document begins here; a state file has one
== file: services twice
services:
- service: {name: a}
services: []
> 3:1: duplicate key 'services'
== file: an alias of a later service
services:
- service: {name: a, labels: *later}
- service: &later {name: b}
> 2:30: alias '*later' refers to nothing before it
== file: an alias of nothing
services: *no
> 1:11: alias '*no' refers to nothing before it
== file: nested too deeply
services: ${'['.repeat(101)}${']'.repeat(101)}
> 1:110: nested too deeply
== file: aliases that expand to very much
services: []
nodes:
  l0: &l0 [x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x]
${Array.from({ length: 6 }, (_, n) => `  l${n + 1}: &l${n + 1} [${`*l${n}, `.repeat(20)}]`).join('\n')}
> 7:32: the aliases stand for more than 1000000 values
== file: an alias of itself
services: &all [*all]
> 1:17: alias '*all' refers to itself
`;

/** The problems after `>`, the warnings after `~`. */
function casesIn(table: string): { name: string; text: string; expected: string[] }[] {
  const blocks = table.trim().split(/^== /m).slice(1);
  return blocks.map((block) => {
    const [name = '', ...rest] = block.trimEnd().split('\n');
    const isText = (line: string): boolean => !/^[>~] /.test(line);
    const text = (name.startsWith('service:') ? fileWith : lines)(...rest.filter(isText));
    const expected = rest.filter((line) => !isText(line));
    return { name, text, expected };
  });
}

function foundIn(text: string): string[] {
  const [errors, warnings] = [problemsOf(text), warningsOf(text)];
  return [...errors.map((each) => `> ${each}`), ...warnings.map((each) => `~ ${each}`)];
}

for (const { name, text, expected } of [...casesIn(VALUES), ...casesIn(SYNTAX)]) {
  t.test(name, async (t) => {
    t.strictSame(foundIn(text), expected);
    // The quotes around `services` are behind the items' lines, so positions stay.
    const whole = foundIn(inOnePiece(text));
    if (VALUES.includes(`== ${name}\n`)) t.strictSame(whole, expected, 'the same in one piece');
    else
      t.ok(
        whole.some((each) => each.startsWith('>')),
        'refused in one piece, too',
      );
  });
}
