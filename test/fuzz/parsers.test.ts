/**
 * Parsers of outside text, given damaged samples: each has to return or to throw what it is said to throw, in
 * little time. docs/how-to/harden.md lists all parsers and their targets; most have one in a test of their own.
 */
import * as fc from 'fast-check';
import t from 'tap';
import { answerAdmin } from '../../src/admin/handler.ts';
import type { Operation } from '../../src/admin/operations.ts';
import { readTaken, refusal, takenText, type Hello } from '../../src/handover/protocol.ts';
import { readFlows } from '../../src/portal/flows.ts';
import { readLinks, Spelling } from '../../src/portal/interface/linux-list.ts';
import { findRules } from '../../src/portal/iptables/listing.ts';
import { differenceIn } from '../../src/portal/nftables/listing.ts';
import { renderTable, type SetName } from '../../src/portal/nftables/table.ts';
import type { RuleConfig } from '../../src/portal/rules/backend.ts';
import { ItemMap } from '../../src/portal/rules/items.ts';
import {
  readConnections,
  readExcludedPorts,
  readIpv4Listing,
  readIpv6Listing,
} from '../../src/portal/windows/listing.ts';
import { readRules } from '../../src/portal/windows/portproxy-rules.ts';
import { SerialQueue } from '../../src/util/serial-queue.ts';
import { mutations } from '../support/mutations.ts';
import { holdsAsync } from '../support/property.ts';

interface Target {
  readonly name: string;
  /** Well-formed texts, which are then damaged. */
  readonly samples: readonly string[];
  readonly parse: (text: string) => unknown;
  /** Names of the errors that it may throw. Default: none. */
  readonly throws?: readonly string[];
}

/** For one text, on a loaded machine. Milliseconds. */
const BUDGET_MS = 1000;

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

const RULES: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
};
const SERVICES = new ItemMap<SetName>();
SERVICES.update([], [{ set: 'services6', key: 'fd00::1 . tcp . 80', value: '40001' }]);

const TARGETS: readonly Target[] = [
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
    name: 'what nft lists',
    samples: [
      renderTable('kpng-userspace', RULES),
      'table inet kpng-userspace {\n\tmap services6 {\n\t\ttype ipv6_addr . inet_proto . inet_service : inet_service\n\t\telements = { fd00::1 . tcp . 80 : 40001,\n\t\t\t     ::ffff:10.0.0.1 . udp . 53 : 40002 }\n\t}\n}\n',
      'table inet kpng-userspace {\n\tmap services6 {\n\t\telements = { fd00:x . tcp . 80 : 40001 }\n\t}\n}\n',
    ],
    parse: async (text) => differenceIn(text, RULES, SERVICES),
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
      'Address         Port        Address         Port\r\n--------------- ----------  --------------- ----------\r\n10.96.0.1       80          127.0.0.1       40001\r\n',
    ],
    parse: (text) => [
      readIpv4Listing(text),
      readIpv6Listing(text),
      readExcludedPorts(text),
      readConnections(text),
      readRules(text, 'v4tov4'),
    ],
  },
];

for (const { name, samples, parse, throws = [] } of TARGETS) {
  t.test(`${name}: damaged in any way`, async (t) => {
    for (const sample of samples) await parse(sample);
    // Repeated, for what costs more than its length.
    const seeds = samples.flatMap((text) => [Buffer.from(text), Buffer.from(text.repeat(200))]);
    await holdsAsync(
      t,
      fc.asyncProperty(mutations(seeds), async (bytes) => {
        const text = bytes.toString();
        const begun = performance.now();
        try {
          await parse(text);
        } catch (error) {
          if (!(error instanceof Error) || !throws.includes(error.name)) throw error;
        }
        return performance.now() - begun < BUDGET_MS;
      }),
      1500,
    );
  });
}
