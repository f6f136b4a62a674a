import t from 'tap';
import { fileWith as service, inOnePiece, lines, problemsOf } from '../support/file-rig.ts';

/** A file with one service that has one endpoint. */
function endpoint(...inEndpoint: string[]): string {
  const indented = inEndpoint.map((line) => `    ${line}`);
  return lines(
    'services:',
    '- service:',
    '    name: web',
    '    ports: [{port: 80}]',
    '  endpoints:',
    '  -',
    ...indented,
  );
}

const NAME_RULE = "(letters, digits, '-', '_' and '.'; the first and the last a letter or digit)";

/** What is wrong, the text, and all that is said about it. */
const SERVICE_ERRORS: [string, string, string[]][] = [
  [
    'unknown key',
    service('clusterip: 10.0.0.1', 'ips: {clusterip: {v4: [10.0.0.1]}}'),
    [
      "4:5: services[0].service.clusterip: unknown key 'clusterip'",
      "5:11: services[0].service.ips.clusterip: unknown key 'clusterip'; did you mean 'clusterips'?",
    ],
  ],
  [
    'key in the wrong case',
    service('externalTrafficToLocal: true'),
    [
      "4:5: services[0].service.externalTrafficToLocal: unknown key 'externalTrafficToLocal'; did you mean 'externaltraffictolocal'?",
    ],
  ],
  [
    'port 0, port 70000, negative and broken ports',
    service(
      'ports:',
      '- {name: a, port: 0}',
      '- {name: b, port: 70000}',
      '- {name: c, port: -1, nodeport: 65536}',
      '- {name: d, port: 80.5, targetport: 1e9}',
    ),
    [
      '5:23: services[0].service.ports[0].port: 0 is not a port (1 to 65535)',
      '6:23: services[0].service.ports[1].port: 70000 is not a port (1 to 65535)',
      '7:23: services[0].service.ports[2].port: -1 is not a port (1 to 65535)',
      '7:37: services[0].service.ports[2].nodeport: 65536 is not a port (0 to 65535)',
      '8:23: services[0].service.ports[3].port: 80.5 is not a port (1 to 65535)',
      '8:41: services[0].service.ports[3].targetport: 1000000000 is not a port (0 to 65535)',
    ],
  ],
  [
    'port as text, port without a value, no port',
    service('ports:', '- {name: a, port: "80"}', '- {name: b, port: }', '- {name: c}', '- 80'),
    [
      '5:23: services[0].service.ports[0].port: "80" is not a port (1 to 65535); remove the quotes',
      '6:17: services[0].service.ports[1].port: there is no value; it must be a port (1 to 65535)',
      "7:7: services[0].service.ports[2]: 'port' is missing",
      '8:7: services[0].service.ports[3]: 80 is not a port of a service',
    ],
  ],
  [
    'protocol',
    service(
      'ports:',
      '- {name: a, port: 1, protocol: tcp}',
      '- {name: b, port: 2, protocol: 0}',
      '- {name: c, port: 3, protocol: ICMP}',
    ),
    [
      '5:36: services[0].service.ports[0].protocol: "tcp" is not a protocol; did you mean TCP?',
      '6:36: services[0].service.ports[1].protocol: 0 is not a protocol (TCP, UDP, SCTP, 1, 2, 3)',
      '7:36: services[0].service.ports[2].protocol: "ICMP" is not a protocol (TCP, UDP, SCTP, 1, 2, 3)',
    ],
  ],
  [
    'IPv4 addresses: shorthand, leading zeros, a network, a name, the other family, a number',
    service(
      'ips:',
      '  clusterips:',
      '    v4: [10.1, 10.0.0.01, 256.0.0.1, 10.0.0.0/8, host, "fd00::1", 167772161]',
    ),
    [
      '6:14: services[0].service.ips.clusterips.v4[0]: 10.1 is not an IPv4 address',
      '6:20: services[0].service.ips.clusterips.v4[1]: "10.0.0.01" is not an IPv4 address',
      '6:31: services[0].service.ips.clusterips.v4[2]: "256.0.0.1" is not an IPv4 address',
      '6:42: services[0].service.ips.clusterips.v4[3]: "10.0.0.0/8" is not an IPv4 address',
      '6:54: services[0].service.ips.clusterips.v4[4]: "host" is not an IPv4 address',
      '6:60: services[0].service.ips.clusterips.v4[5]: "fd00::1" is not an IPv4 address; it belongs under \'v6\'',
      '6:71: services[0].service.ips.clusterips.v4[6]: 167772161 is not an IPv4 address',
    ],
  ],
  [
    'IPv6 addresses: the other family, IPv4-mapped, with a zone, broken',
    service(
      'ips:',
      '  externalips:',
      '    v6: [10.0.0.1, "::ffff:10.0.0.1", "fe80::1%eth0", "fd00:::1"]',
    ),
    [
      '6:14: services[0].service.ips.externalips.v6[0]: "10.0.0.1" is not an IPv6 address; it belongs under \'v4\'',
      '6:24: services[0].service.ips.externalips.v6[1]: "::ffff:10.0.0.1" is not an IPv6 address: it is an IPv4 address; write that under \'v4\'',
      '6:43: services[0].service.ips.externalips.v6[2]: "fe80::1%eth0" is not an IPv6 address: it has a zone',
      '6:59: services[0].service.ips.externalips.v6[3]: "fd00:::1" is not an IPv6 address',
    ],
  ],
  [
    'source ranges',
    service(
      'ipfilters:',
      '- sourceranges: [10.0.0.0/8, 10.0.0.0, 10.0.0.0/33, 10.0.0.0/08, "fd00::/129", "fd00::/8"]',
    ),
    [
      '5:34: services[0].service.ipfilters[0].sourceranges[1]: "10.0.0.0" is not a network (CIDR)',
      '5:44: services[0].service.ipfilters[0].sourceranges[2]: "10.0.0.0/33" is not a network (CIDR)',
      '5:57: services[0].service.ipfilters[0].sourceranges[3]: "10.0.0.0/08" is not a network (CIDR)',
      '5:70: services[0].service.ipfilters[0].sourceranges[4]: "fd00::/129" is not a network (CIDR)',
    ],
  ],
  [
    'names',
    lines(
      'services:',
      '- service: {name: a/b}',
      '- service: {name: ""}',
      '- service: {name: 7}',
      '- service: {namespace: a b, name: -c}',
      `- service: {name: ${'x'.repeat(254)}}`,
    ),
    [
      `2:19: services[0].service.name: "a/b" is not a name ${NAME_RULE}`,
      `3:19: services[1].service.name: "" is not a name ${NAME_RULE}`,
      '4:19: services[2].service.name: 7 is not a name; put it in quotes: "7"',
      `5:24: services[3].service.namespace: "a b" is not a namespace ${NAME_RULE}`,
      `5:35: services[3].service.name: "-c" is not a name ${NAME_RULE}`,
      `6:19: services[4].service.name: "${'x'.repeat(57)}..." is too long for a name (at most 253 characters)`,
    ],
  ],
  [
    'types',
    service(
      'type: Clusterip',
      'labels: [a]',
      'annotations: {a: 1, b: true, c: , d: [x]}',
      'mapip: yes',
      'ports: {port: 80}',
      'ips: 10.0.0.1',
      'sessionaffinity: ClientIP',
    ),
    [
      '4:11: services[0].service.type: "Clusterip" is not a service type; did you mean ClusterIP?',
      '5:13: services[0].service.labels: a list is not a map of text to text',
      '6:22: services[0].service.annotations.a: 1 is not text; put it in quotes: "1"',
      '6:28: services[0].service.annotations.b: true is not text; put it in quotes: "true"',
      '6:34: services[0].service.annotations.c: there is no value; it must be text',
      '6:42: services[0].service.annotations.d: a list is not text',
      '7:12: services[0].service.mapip: "yes" is not true or false',
      '8:12: services[0].service.ports: a map is not a list of ports',
      '9:10: services[0].service.ips: "10.0.0.1" is not a map with the addresses of a service',
      '10:22: services[0].service.sessionaffinity: "ClientIP" is not a session affinity, such as {clientip: {timeoutseconds: 10800}}',
    ],
  ],
  [
    'session affinity',
    service('sessionaffinity: {clientip: {timeoutseconds: 0}}'),
    [
      '4:50: services[0].service.sessionaffinity.clientip.timeoutseconds: 0 is not an affinity time in seconds (1 to 86400)',
    ],
  ],
  [
    'duplicate port name, ports without a name, duplicate port',
    service(
      'ports:',
      '- {name: a, port: 1}',
      '- {name: a, port: 2}',
      '- {port: 3}',
      '- {port: 4}',
      '- {name: b, port: 3, protocol: TCP}',
      '- {name: c, port: 3, protocol: UDP}',
    ),
    [
      "6:14: services[0].service.ports[1].name: duplicate port name 'a' (see ports[0])",
      '8:7: services[0].service.ports[3]: more than one port without a name (ports[2] has none either)',
      '9:23: services[0].service.ports[4].port: duplicate port TCP 3 (see ports[2])',
    ],
  ],
  [
    'keys that stand too high or too low',
    lines(
      'services:',
      '- service:',
      '    name: web',
      '    clusterips: {v4: [10.0.0.1]}',
      '    ips: {v4: [10.0.0.1]}',
      '    ports: [{port: 80, sessionaffinity: null}]',
      '    endpoints: []',
      '  type: ClusterIP',
      '  endpoints: [{podname: a, ips: null, endpoint: {topology: null}, labels: {}}]',
    ),
    [
      "4:5: services[0].service.clusterips: unknown key 'clusterips'; it belongs under 'ips'",
      "5:11: services[0].service.ips.v4: unknown key 'v4'; it belongs under 'clusterips' or 'externalips' or 'loadbalancerips'",
      "6:24: services[0].service.ports[0].sessionaffinity: unknown key 'sessionaffinity'; it belongs beside 'ports'",
      "7:5: services[0].service.endpoints: unknown key 'endpoints'; it belongs beside 'service'",
      "8:3: services[0].type: unknown key 'type'; it belongs under 'service'",
      "9:28: services[0].endpoints[0].ips: unknown key 'ips'; it belongs under 'endpoint'",
      "9:50: services[0].endpoints[0].endpoint.topology: unknown key 'topology'; it belongs beside 'endpoint'",
      "9:67: services[0].endpoints[0].labels: unknown key 'labels'",
    ],
  ],
  [
    'values of the wrong form, with the right one',
    lines(
      'services:',
      '- service:',
      '    name: web',
      '    ips: {clusterips: {v4: 10.0.0.1}, externalips: 10.0.0.1, loadbalancerips: {v6: [fd00::]}}',
      '    ports: [{port: 80, targetport: http}]',
      '    ipfilters: [{sourceranges: 10.0.0.0/8}]',
      '  endpoints: [{conditions: true, topology: n1, hints: [east]}]',
    ),
    [
      '4:28: services[0].service.ips.clusterips.v4: "10.0.0.1" is not a list of IPv4 addresses, such as [10.96.0.10]',
      '4:52: services[0].service.ips.externalips: "10.0.0.1" is not a set of addresses by family, such as {v4: [10.96.0.10]}',
      '4:85: services[0].service.ips.loadbalancerips.v6[0]: a map is not an IPv6 address; put it in quotes',
      '5:36: services[0].service.ports[0].targetport: "http" is not a port (0 to 65535); a name belongs under \'targetportname\'',
      '6:32: services[0].service.ipfilters[0].sourceranges: "10.0.0.0/8" is not a list of networks, such as [10.0.0.0/8]',
      '7:28: services[0].endpoints[0].conditions: true is not a map of conditions, such as {ready: true}',
      '7:44: services[0].endpoints[0].topology: "n1" is not a topology, such as {node: node-1, zone: east}',
      '7:55: services[0].endpoints[0].hints: a list is not a map of topology hints, such as {zones: [east]}',
    ],
  ],
  [
    'endpoint',
    endpoint(
      'ready: true',
      'conditions: {ready: maybe}',
      'hints: {zones: north}',
      'topology: {hostname: n1}',
      'endpoint: {ips: [10.0.0.1], portoverrides: [{name: http}, {port: 0}]}',
    ),
    [
      "7:5: services[0].endpoints[0].ready: unknown key 'ready'; it belongs under 'conditions'",
      '8:25: services[0].endpoints[0].conditions.ready: "maybe" is not true or false',
      '9:20: services[0].endpoints[0].hints.zones: "north" is not a list of zones, such as [east]',
      "10:16: services[0].endpoints[0].topology.hostname: unknown key 'hostname'",
      '11:21: services[0].endpoints[0].endpoint.ips: a list is not a set of addresses by family, such as {v4: [10.96.0.10]}',
      "11:49: services[0].endpoints[0].endpoint.portoverrides[0]: 'port' is missing",
      '11:70: services[0].endpoints[0].endpoint.portoverrides[1].port: 0 is not a port (1 to 65535)',
    ],
  ],
  [
    'duplicate port override',
    endpoint('endpoint: {portoverrides: [{port: 1}, {port: 2}]}'),
    ["7:43: services[0].endpoints[0].endpoint.portoverrides[1].name: duplicate port override ''"],
  ],
  [
    'service item without service, endpoints of nothing',
    lines('services:', '- name: web', '- endpoints: []', '- ~', '- web'),
    [
      "2:3: services[0]: 'service' is missing",
      "2:3: services[0].name: unknown key 'name'; it belongs under 'service'",
      "3:3: services[1]: 'service' is missing",
      '4:3: services[2]: there is no value; it must be a service with its endpoints',
      '5:3: services[3]: "web" is not a service with its endpoints',
    ],
  ],
  [
    'duplicate services',
    lines(
      'services:',
      '- service: {name: web}',
      '- service: {name: other}',
      '- service: {name: web, namespace: default}',
      '- service: {name: web, namespace: else}',
    ),
    ['4:19: services[2].service.name: duplicate service default/web (see services[0] in line 2)'],
  ],
];

for (const [name, text, expected] of SERVICE_ERRORS) {
  t.test(name, async (t) => {
    t.strictSame(problemsOf(text), expected);
    // The quotes around `services` are behind the items' lines, so positions stay.
    t.strictSame(problemsOf(inOnePiece(text)), expected, 'the same in one piece');
  });
}
