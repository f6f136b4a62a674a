import t from 'tap';
import { configurableFlags } from '../../src/cli/parse.ts';
import { CONFIG_LIMITS } from '../../src/config/fields.ts';
import {
  type ConfigFile,
  type ConfigProblem,
  problemText,
  resolveConfig,
} from '../../src/config/file.ts';

const FIELDS = configurableFlags();
const OWN = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
const KUBE_PROXY = 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n';

function good(text: string): ConfigFile {
  const resolved = resolveConfig('c.yaml', text, FIELDS);
  if (resolved.ok) return resolved.config;
  throw new Error(told(resolved.problems).join('\n'));
}

function bad(text: string): string[] {
  const resolved = resolveConfig('c.yaml', text, FIELDS);
  if (resolved.ok) throw new Error('it is good');
  return told(resolved.problems);
}

function told(problems: readonly ConfigProblem[]): string[] {
  return problems.map((problem) => problemText('c.yaml', problem));
}

function texts({ settings }: ConfigFile): Record<string, string> {
  return Object.fromEntries([...settings].map(([flag, { text }]) => [flag, text]));
}

t.test('values of each type become what the flag would be given', async (t) => {
  const config = good(`${OWN}
v: 4
portal: none
cleanupOnExit: true
nodeportAddresses: [10.0.0.0/8, localhost]
connectTimeouts: 1s,2s
bulkBufferBudget: 1048576
udpSocketBuffer: 4Mi
metricsBindAddress: ""
drainTimeout: null
`);
  t.same(texts(config), {
    v: '4',
    portal: 'none',
    'cleanup-on-exit': 'true',
    'nodeport-addresses': '10.0.0.0/8,localhost',
    'connect-timeouts': '1s,2s',
    'bulk-buffer-budget': '1048576',
    'udp-socket-buffer': '4Mi',
    'metrics-bind-address': '',
  });
  t.match(config.settings.get('portal'), { field: 'portal', line: 5 });
  t.equal(config.command, undefined);
});

t.test('the command is a text or a list of words, without flags', async (t) => {
  t.same(good(`${OWN}command: file to-json`).command, ['file', 'to-json']);
  t.same(good(`${OWN}command: [kube, to-local, to-userspace]`).command?.length, 3);
  t.match(bad(`${OWN}command: file to-json --input x`), [/c.yaml:3:1: command: .*without flags/]);
  t.match(bad(`${OWN}command: 5`), [/expected the words/]);
});

t.test('every error is reported at once, with its place and what was probably meant', async (t) => {
  t.same(
    bad(`${OWN}maxConections: 1\nloggingFormat: yaml\nv: "4"\ndrainTimeout: 5s\nzzzzzz: 1\n`),
    [
      'c.yaml:3:1: maxConections: unknown field; did you mean maxConnections?',
      'c.yaml:4:1: loggingFormat: "yaml": expected text, json',
      'c.yaml:5:1: v: expected a whole number',
      'c.yaml:7:1: zzzzzz: unknown field',
    ],
  );
});

t.test('documents that are not ours, not YAML, or twice', async (t) => {
  t.match(bad('a: 1'), ['c.yaml:1:1: apiVersion is missing']);
  t.match(bad('[]'), [/expected an object with apiVersion and kind/]);
  t.match(bad('# nothing\n'), ['c.yaml: there is no document in the file']);
  t.match(bad('apiVersion: v1\nkind: ConfigMap\n'), [/unknown kind ConfigMap; expected KubeProxy/]);
  t.match(bad(OWN.replace('v1alpha1', 'v2')), [/unknown apiVersion kpng-userspace\/v2/]);
  t.match(bad(`${OWN}---\n${OWN}`), [/c.yaml:4:1: a second document of the kind/]);
  t.match(bad(`${OWN}v: [1`), [/c.yaml:\d+:\d+: /]);
});

t.test('fields of kube-proxy that mean the same here', async (t) => {
  const config = good(`${KUBE_PROXY}
bindAddress: 10.0.0.1
clientConnection: { kubeconfig: /etc/kubeconfig }
healthzBindAddress: 0.0.0.0
hostnameOverride: node-1
logging: { format: json, verbosity: 3 }
metricsBindAddress: "[::1]:10249"
mode: userspace
nodePortAddresses: [primary]
oomScoreAdj: -999
portRange: 36000-37000
udpIdleTimeout: 250ms
`);
  t.same(texts(config), {
    'bind-address': '10.0.0.1',
    kubeconfig: '/etc/kubeconfig',
    'healthz-bind-address': '0.0.0.0:10256',
    'node-name': 'node-1',
    'logging-format': 'json',
    v: '3',
    'metrics-bind-address': '[::1]:10249',
    'nodeport-addresses': 'primary',
    'oom-score-adj': '-999',
    'port-range': '36000-37000',
    'udp-idle-timeout': '250ms',
  });
  t.same(config.warnings, []);
  t.same(config.command, ['kube', 'to-local', 'to-userspace']);
  t.match(config.settings.get('kubeconfig'), { field: 'clientConnection.kubeconfig', line: 5 });
});

t.test('a file written by kubeadm sets only what it names', async (t) => {
  const config = good(`${KUBE_PROXY}
bindAddress: ""
bindAddressHardFail: false
clientConnection: { burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf }
clusterCIDR: ""
configSyncPeriod: 0s
conntrack: { maxPerCore: null, min: null, tcpBeLiberal: false, udpTimeout: 0s }
detectLocal: { bridgeInterface: "", interfaceNamePrefix: "" }
detectLocalMode: ""
enableProfiling: false
featureGates: {}
healthzBindAddress: ""
hostnameOverride: ""
iptables: { localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, syncPeriod: 0s }
ipvs: { excludeCIDRs: null, scheduler: "", strictARP: false }
logging: { flushFrequency: 0, options: { json: { infoBufferSize: "0" } }, verbosity: 0 }
metricsBindAddress: ""
mode: ""
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: { enableDSR: false, networkName: "" }
udpIdleTimeout: 0s
`);
  t.same(texts(config), { kubeconfig: '/var/lib/kube-proxy/kubeconfig.conf', v: '0' });
  t.same(told(config.warnings), []);
});

t.test('what does not apply is a warning by name; what kube-proxy lacks is an error', async (t) => {
  const { warnings } = good(`${KUBE_PROXY}
mode: ipvs
detectLocalMode: NodeCIDR
conntrack: { maxPerCore: 32768, min: 0 }
featureGates: { A: true }
iptables: { minSyncPeriod: 1s }
`);
  t.same(
    warnings.map(({ field }) => field),
    ['mode', 'detectLocalMode', 'conntrack.maxPerCore', 'featureGates', 'iptables.minSyncPeriod'],
  );
  for (const { message } of warnings) t.match(message, /^has no effect: \w/);
  t.match(bad(`${KUBE_PROXY}clusterCidr: x`), [/did you mean clusterCIDR\?/]);
  t.match(bad(`${KUBE_PROXY}clientConnection: { kubeConfig: x }`), [
    'c.yaml:3:21: clientConnection.kubeConfig: unknown field; did you mean kubeconfig?',
  ]);
  t.match(bad(`${KUBE_PROXY}clientConnection: 7`), [/expected an object/]);
  t.match(bad(`${KUBE_PROXY}bindAddress: 7`), [/expected a text/]);
  t.match(bad(`${KUBE_PROXY}toString: 7`), [/unknown field/]);
});

t.test('where both kinds set the same, ours counts, in whatever order they stand', async (t) => {
  const ours = `${OWN}portRange: 1-2\ncommand: local to-userspace\n`;
  const theirs = `${KUBE_PROXY}portRange: 3-4\nudpIdleTimeout: 5s\n`;
  for (const text of [`${ours}---\n${theirs}`, `---\n${theirs}---\n${ours}---\n`]) {
    const config = good(text);
    t.same(texts(config), { 'port-range': '1-2', 'udp-idle-timeout': '5s' });
    t.same(config.command, ['local', 'to-userspace']);
  }
});

/** Configuration files that were made to be expensive. None may block the main thread for long. */

const { maxFileBytes } = CONFIG_LIMITS;

/** As many of the pieces as fit into a file after a text. */
function fill(piece: (index: number) => string, before = OWN): string {
  const pieces: string[] = [];
  for (let length = before.length, index = 0; ; index += 1) {
    const next = piece(index);
    length += next.length;
    if (length > maxFileBytes) return before + pieces.join('');
    pieces.push(next);
  }
}

const bomb = Array.from({ length: 9 }, (_, level) => {
  const refers = Array.from({ length: 9 }, () => (level === 0 ? 'x' : `*l${level - 1}`));
  return `l${level}: &l${level} [${refers.join(', ')}]\n`;
});

const HOSTILE: Readonly<Record<string, readonly [text: string, problem: RegExp]>> = {
  'complex keys in each other': [`${'? '.repeat(31)}x`, /nested too deeply/],
  'a key that is a map': [`${OWN}? {a: b}\n: c\n`, /a key must be text/],
  'one key again and again': [fill(() => 'a: b\n'), /duplicate key 'a'/],
  'very many keys': [fill((index) => `k${index}: b\n`), /more than 2000 keys and values/],
  'a very long list': [`${fill(() => 'a,', `${OWN}nodeportAddresses: [`)}]`, /more than 2000/],
  'very many documents': [fill(() => '---\n', ''), /more than 10 documents/],
  'deep maps': [`${OWN}${'a: {'.repeat(50)}${'}'.repeat(50)}`, /nested too deeply/],
  'deep lists': [fill(() => '['), /nested too deeply/],
  'an alias bomb': [OWN + bomb.join(''), /the aliases stand for more than 2000 values/],
  'a long key': [`${OWN}${'k'.repeat(maxFileBytes / 2)}: 1\n`, /unknown field/],
};

t.test('files that are expensive to read are refused soon', async (t) => {
  for (const [name, [text, problem]] of Object.entries(HOSTILE)) {
    const begin = process.cpuUsage();
    t.match(bad(text)[0], problem, name);
    const { user, system } = process.cpuUsage(begin);
    t.ok(user + system < 2_000_000, name);
  }
});
