/** Parsers of outside text, and the thread that gives them damaged samples; parsers.test.ts starts it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMainThread, parentPort } from 'node:worker_threads';
import * as fc from 'fast-check';
import { answerAdmin, operation } from '../../src/admin/handler.ts';
import { KpngError } from '../../src/errors.ts';
import {
  GREETING,
  HELLO,
  OFFER,
  parseMessage,
  REFUSAL,
  refusal,
  TAKEN,
} from '../../src/handover/protocol.ts';
import { Wire } from '../../src/handover/wire.ts';
import { configurableFlags } from '../../src/cli/parse.ts';
import { resolveConfig } from '../../src/config/file.ts';
import { StateParser } from '../../src/file/parse.ts';
import { loadConfig } from '../../src/kube/config.ts';
import { keepInherited } from '../../src/util/inherited.ts';
import type { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { parseProxyHeader, proxyHeader } from '../../src/proxysocket/tcp/proxy-protocol.ts';
import { keepPreviousFlows } from '../../src/proxysocket/udp/known-clients.ts';
import { clearFlows } from '../../src/portal/rules/udp-flows.ts';
import { readLinks } from '../../src/portal/interface/linux.ts';
import { findRules } from '../../src/portal/iptables/script.ts';
import { readTable } from '../../src/portal/nftables/listing.ts';
import { renderTable } from '../../src/portal/nftables/table.ts';
import type { RuleConfig } from '../../src/portal/rules/backend.ts';
import { readConnections, readExcludedPorts } from '../../src/portal/windows/netsh.ts';
import { readRules } from '../../src/portal/windows/portproxy.ts';
import { SerialQueue } from '../../src/util/serial-queue.ts';
import { elementsOf } from '../support/portals.ts';
import { mutations, yamlBits, holdsAsync } from '../support/property.ts';

export interface Target {
  readonly name: string;
  /** Well-formed texts, which are then damaged. */
  readonly samples: readonly string[];
  readonly parse: (text: string) => unknown;
  /** Codes of KpngErrors, or names of other errors, that it may throw. Default: none. */
  readonly throws?: readonly string[];
  /** What a YAML file of its kind begins with: anything that means something is repeated behind it. */
  readonly yaml?: string;
}

/** For one text, on a loaded machine. Milliseconds of CPU time. */
const BUDGET_MS = 1000;
/** The same for YAML, which is read in threads of its own that may take longer. */
const YAML_BUDGET_MS = 5000;
/** For looking for a counterexample. Milliseconds. */
const SEARCH_MS = 400;

const operations = [operation('change drain service count', '', (input) => input)];
const signal = new AbortController().signal;

const RULES: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
};
const SERVICES = elementsOf({ set: 'services6', key: 'fd00::1 . tcp . 80', value: '40001' });

const ADDRESS = { address: '2001:db8::1', port: 1 };

const KUBECONFIG = `
apiVersion: v1
kind: Config
current-context: main
contexts:
- {name: main, context: {cluster: east, user: kpng}}
clusters:
- {name: east, cluster: {server: "https://east.example:6443/", proxy-url: "http://proxy:3128"}}
users:
- name: kpng
  user: {token: abc, as: admin, as-groups: [a, b], client-certificate-data: AAAA}
- {name: file, user: {tokenFile: token}}
- name: program
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, env: [{name: A, value: b}]}}
`;
const STATE =
  'services:\n- service: {name: a}\n  endpoints:\n  - endpoint: {ips: {v4: [10.0.0.1]}}\n';
const CONFIG = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\nv: 1\n';
/** Each line stands for ten of the line before. */
const ALIASES = Array.from(
  { length: 12 },
  (_, i) =>
    `a${i}: &a${i} [${Array(10)
      .fill(i === 0 ? 'x' : `*a${i - 1}`)
      .join(', ')}]\n`,
).join('');

export const TARGETS: readonly Target[] = [
  {
    name: 'requests of the admin API',
    samples: ['{"service":"demo/web","count":3}', 'service=demo/web&count=3', '/v1/drain'],
    parse: async (text) => {
      const path = text.startsWith('/') ? text : '/v1/drain';
      const request = { method: 'POST', path, query: text, readBody: async () => text, signal };
      return answerAdmin(request as never, operations, new SerialQueue(), true);
    },
  },
  {
    name: 'the greeting of a new process',
    samples: [`${JSON.stringify(HELLO)}\n`],
    parse: async (text) => refusal(parseMessage('greeting', await lineOf(text), GREETING), ''),
    throws: ['KPNG_HANDOVER_FAILED'],
  },
  {
    name: 'the offer of an old process',
    samples: [OFFER, REFUSAL].map((message) => `${JSON.stringify(message)}\n`),
    parse: async (text) => {
      const line = await lineOf(text);
      const offer = parseMessage<typeof OFFER | typeof REFUSAL>('offer', line, OFFER, REFUSAL);
      if (!offer.ok) return;
      // As the new process uses them.
      keepInherited([], offer.former);
      keepPreviousFlows(offer.flows);
    },
    throws: ['KPNG_HANDOVER_FAILED'],
  },
  {
    name: 'what a new process says at the end of a hand-over',
    samples: ['{"left":[4,5]}\n', '{"left":[]}\n'],
    parse: async (text) => {
      const { left } = parseMessage('list of sockets', await lineOf(text), TAKEN);
      if (!left.every(Number.isInteger)) throw new Error('not inode numbers');
    },
    throws: ['KPNG_HANDOVER_FAILED'],
  },
  {
    name: 'a state file',
    samples: [STATE],
    yaml: 'services:\n',
    parse: (text) => new StateParser().parse(text),
  },
  {
    name: 'a configuration file',
    samples: [CONFIG],
    yaml: CONFIG,
    parse: (text) => resolveConfig('c.yaml', text, configurableFlags()),
  },
  {
    name: 'a kubeconfig',
    yaml: KUBECONFIG,
    samples: [KUBECONFIG, KUBECONFIG + ALIASES, JSON.stringify({ users: [{ user: {} }] })],
    parse: async (text) => {
      writeFileSync(kubeconfig, text);
      try {
        const { server } = await loadConfig({ kubeconfig, server: '', env: {} });
        if (!/^https?:$/.test(server.protocol)) throw new Error(`server ${server.href}`);
      } catch (error) {
        // A message that is for people, not one of the engine.
        const internal = /undefined|not a function|not iterable|Cannot (?:read|set|convert)/;
        if (internal.test(String(error)))
          throw new Error(`says ${String(error)}`, { cause: error });
        throw error;
      }
    },
    throws: ['KPNG_KUBECONFIG'],
  },
  {
    name: 'PROXY protocol headers',
    samples: [
      'PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n',
      ...([1, 2] as const).map((version) =>
        proxyHeader(version, ADDRESS, { ...ADDRESS, port: 443 }).toString('latin1'),
      ),
    ],
    parse: (text) => parseProxyHeader(Buffer.from(text, 'latin1')),
  },
  {
    name: 'what conntrack lists',
    samples: [
      'udp 17 29 src=10.0.0.1 dst=10.96.0.1 sport=5353 dport=53 src=10.1.0.1 dst=10.0.0.1 sport=53 dport=5353 mark=0 use=1\n'.repeat(
        5,
      ),
    ],
    parse: async (text) =>
      clearFlows(async () => ({ stdout: text, stderr: '' }), new Map([['4 10.96.0.1 53', '']])),
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
    parse: async (text) => readTable(text, RULES, SERVICES),
  },
  {
    name: 'what ip lists',
    samples: [
      '[{"ifname":"lo","flags":["LOOPBACK","UP"],"addr_info":[{"local":"127.0.0.1","prefixlen":8,"scope":"host"},{"local":"::1","prefixlen":128}]}]',
    ],
    parse: (text) => readLinks(text),
    // It comes from the system's own tool; what is no listing fails the look, which is repeated.
    throws: ['SyntaxError', 'TypeError', 'Error'],
  },
  {
    name: 'what netsh and netstat list',
    samples: [
      'Start Port    End Port\r\n      5357        5357\r\n     50000       50059     *\r\n',
      '  TCP    [fe80::1%4]:80    [fe80::2]:5000     ESTABLISHED\r\n',
      'Address         Port        Address         Port\r\n--------------- ----------  --------------- ----------\r\n10.96.0.1       80          127.0.0.1       40001\r\n',
    ],
    parse: (text) => [
      readExcludedPorts(text, { first: 1, last: 65_535 }),
      readConnections(text),
      readRules(text, 'v4tov4'),
    ],
  },
];

/** The line that comes on a connection, in pieces; long ones in the worst, which are of a byte. */
function lineOf(text: string): Promise<string> {
  const bytes = Buffer.from(text);
  const size = bytes.length > 1000 ? 1 : 64;
  let at = 0;
  const wire = new Wire(NO_SYS, {} as Socket);
  wire.receive = () => {
    at += size;
    return bytes.subarray(at - size, at);
  };
  return wire.readLine();
}

/** Enough for a wire that is not used. */
const NO_SYS = { ffi: { getRawPointer: () => 0n } } as unknown as Sys;

// The time limit ends the search.
fc.configureGlobal({ numRuns: 100_000 });

/** Throws with the smallest text that breaks a target. */
async function search({ samples, parse, throws = [], yaml }: Target): Promise<void> {
  // Loads what the parser needs; its time does not count.
  await parse(samples[0] ?? '');
  for (const sample of samples) await attempt(sample);
  // Repeated, for what costs more than its length.
  const seeds = samples.flatMap((text) => [Buffer.from(text), Buffer.from(text.repeat(200))]);
  const property = fc.asyncProperty(mutations(seeds), async (bytes) => attempt(bytes.toString()));
  await holdsAsync({ pass: () => undefined }, property, SEARCH_MS);
  if (yaml === undefined) return;
  const repeated = fc.tuple(fc.array(yamlBits, { minLength: 1, maxLength: 6 }), fc.nat(20_000));
  const repetition = fc.asyncProperty(repeated, async ([bits, times]) =>
    attempt(`${yaml}${bits.join('').repeat(times)}`.slice(0, 200_000), YAML_BUDGET_MS),
  );
  await holdsAsync({ pass: () => undefined }, repetition, SEARCH_MS);

  async function attempt(text: string, budgetMs = BUDGET_MS): Promise<void> {
    const begun = process.cpuUsage();
    try {
      await parse(text);
    } catch (error) {
      const kind = error instanceof KpngError ? error.code : error instanceof Error && error.name;
      if (kind === false || !throws.includes(kind)) throw error;
    }
    const { user, system } = process.cpuUsage(begun);
    const tookMs = (user + system) / 1000;
    if (tookMs > budgetMs) throw new Error(`${text.length} characters took ${tookMs} ms`);
  }
}

const folder = mkdtempSync(join(tmpdir(), 'kpng-fuzz-'));
const kubeconfig = join(folder, 'kubeconfig');

for (const target of isMainThread ? [] : TARGETS) {
  const outcome = await search(target).then(
    () => 'held',
    (error: unknown) => (error instanceof Error ? error.stack : String(error)),
  );
  parentPort?.postMessage(outcome, []);
}
rmSync(folder, { recursive: true });
