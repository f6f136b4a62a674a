/**
 * Parsers of outside text, given damaged samples: each has to return or to throw what it is said to throw, in
 * little time. docs/security.md lists all parsers and their targets; most have one in a test of their own.
 */
import * as fc from 'fast-check';
import t from 'tap';
import { answerAdmin } from '../../src/admin/handler.ts';
import type { Operation } from '../../src/admin/operations.ts';
import { readTaken, refusal, takenText, type Hello } from '../../src/handover/protocol.ts';
import { object } from '../../src/kube/json.ts';
import { mapNode } from '../../src/kube/map-node.ts';
import { mapService } from '../../src/kube/map-service.ts';
import { mapSlice, sharedTopologies } from '../../src/kube/map-slice.ts';
import { readFlows } from '../../src/portal/flows.ts';
import { readLinks, Spelling } from '../../src/portal/interface/linux-list.ts';
import { findRules } from '../../src/portal/iptables/listing.ts';
import {
  readConnections,
  readExcludedPorts,
  readIpv4Listing,
  readIpv6Listing,
} from '../../src/portal/windows/listing.ts';
import { SerialQueue } from '../../src/util/serial-queue.ts';
import * as objects from '../support/fake-api/objects.ts';
import { holdsAsync } from '../support/property.ts';

interface Target {
  readonly name: string;
  /** Well-formed texts, which are then damaged. */
  readonly samples: readonly string[];
  readonly parse: (text: string) => unknown;
  /** Names of the errors that it may throw. Default: none. */
  readonly throws?: readonly string[];
}

/** A damaged text of this size has to be done with in this time, on a loaded machine. Milliseconds. */
const BUDGET_MS = 1000;

const json = (parse: (value: unknown) => unknown) => (text: string) => parse(JSON.parse(text));
const named = { namespace: 'demo', name: 'web' };
const nothing = { labels: () => true, annotations: () => true };

const operations: Operation[] = [
  {
    name: 'drain',
    summary: '',
    access: 'change',
    inputs: ['service', 'count'],
    run: (input) => input,
  },
];
const signal = new AbortController().signal;

const TARGETS: readonly Target[] = [
  {
    name: 'objects of the Kubernetes API',
    samples: [
      objects.service('demo/web', '10.96.0.10', {
        spec: { loadBalancerSourceRanges: ['10.0.0.0/8'], sessionAffinity: 'ClientIP' },
        status: { loadBalancer: { ingress: [{ ip: '192.0.2.1', ipMode: 'VIP' }] } },
      }),
      objects.slice('demo/web-1', [objects.endpoint('10.1.0.1'), objects.endpoint('fd00::1')]),
      objects.node('node-a', 'east'),
    ].map((value) => JSON.stringify(value)),
    parse: json((value) => {
      const raw = object(value);
      return [
        mapService(named, raw, nothing),
        mapSlice(named, raw, sharedTopologies()),
        mapNode(named, raw, nothing),
      ];
    }),
    throws: ['SyntaxError'],
  },
  {
    name: 'requests of the admin API',
    samples: ['{"service":"demo/web","count":3}', 'service=demo/web&count=3', '/v1/drain'],
    parse: async (text) => {
      const path = text.startsWith('/') ? text : '/v1/drain';
      const request = { method: 'POST', path, query: text, body: text, signal };
      const access = { operations, reading: new SerialQueue(), trusted: true };
      return answerAdmin(request as never, access);
    },
  },
  {
    name: 'messages of a hand-over',
    samples: [takenText([4, 5]), '{"handover":1,"pid":7,"network":"4026531840"}\n'],
    parse: (text) => {
      if (readTaken(text) === undefined) refusal(JSON.parse(text) as Hello, 'net');
    },
    throws: ['SyntaxError', 'TypeError'],
  },
  {
    name: 'what conntrack lists',
    samples: [
      'udp 17 29 src=10.0.0.1 dst=10.96.0.1 sport=5353 dport=53 src=10.1.0.1 dst=10.0.0.1 sport=53 dport=5353 mark=0 use=1\n'.repeat(
        5,
      ),
    ],
    parse: (text) => [...readFlows(text)],
  },
  {
    name: 'what iptables-save lists',
    samples: [
      '*nat\n:KUBE-PORTALS-HOST - [0:0]\n-A OUTPUT -j KUBE-PORTALS-HOST\n-A KUBE-PORTALS-HOST -d 10.96.0.1/32 -p tcp -j DNAT\nCOMMIT\n',
    ],
    parse: (text) => findRules('KUBE-PORTALS', text),
  },
  {
    name: 'what ip lists',
    samples: [
      '[{"ifname":"lo","flags":["LOOPBACK","UP"],"addr_info":[{"local":"127.0.0.1","prefixlen":8,"scope":"host"},{"local":"::1","prefixlen":128}]}]',
    ],
    parse: (text) => readLinks(text, new Spelling()),
    // It comes from the system's own tool; what is no listing fails the look, which is repeated.
    throws: ['SyntaxError', 'TypeError', 'Error'],
  },
  {
    name: 'what netsh and netstat list',
    samples: [
      '    IP Address:          10.0.0.5\r\n    Subnet Prefix:       10.0.0.0/24 (mask 255.255.255.0)\r\n',
      'Start Port    End Port\r\n      5357        5357\r\n     50000       50059     *\r\n',
      '  TCP    [fe80::1%4]:80    [fe80::2]:5000     ESTABLISHED\r\n',
    ],
    parse: (text) => [
      readIpv4Listing(text),
      readIpv6Listing(text),
      readExcludedPorts(text),
      readConnections(text),
    ],
  },
];

/** Pieces that parsers care about. */
const TOKENS = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ':',
  ',',
  '\n',
  '\r\n',
  ' ',
  '0',
  '-1',
  '1e999',
  'null',
  '%',
  '/',
  '::',
];

/** A damage: a part of the text is replaced, several times over. */
const damage = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  length: fc.nat(40),
  piece: fc.oneof(fc.constantFrom(...TOKENS), fc.string({ unit: 'binary', maxLength: 10 })),
  times: fc.oneof(fc.nat(3), fc.constantFrom(1000, 20_000)),
});

function apply(
  text: string,
  damages: readonly (typeof damage extends fc.Arbitrary<infer T> ? T : never)[],
): string {
  return damages.reduce((result, { at, length, piece, times }) => {
    const start = Math.floor(at * result.length);
    return result.slice(0, start) + piece.repeat(times) + result.slice(start + length);
  }, text);
}

for (const { name, samples, parse, throws = [] } of TARGETS) {
  t.test(`${name}: damaged in any way`, async (t) => {
    for (const sample of samples) await parse(sample);
    await holdsAsync(
      t,
      fc.asyncProperty(
        fc.constantFrom(...samples),
        fc.array(damage, { minLength: 1, maxLength: 4 }),
        async (sample, damages) => {
          const text = apply(sample, damages);
          const begun = performance.now();
          try {
            await parse(text);
          } catch (error) {
            if (!(error instanceof Error) || !throws.includes(error.name)) throw error;
          }
          return performance.now() - begun < BUDGET_MS;
        },
      ),
      1500,
    );
  });
}
