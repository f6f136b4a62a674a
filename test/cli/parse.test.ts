import * as fc from 'fast-check';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { LIMIT_NAMES } from '../../src/proxysocket/limits.ts';
import { refused, run, userspaceOptions, words } from '../support/command-lines.ts';
import { holds } from '../support/property.ts';

t.test('every source combines with every sink, but local, which knows one node only', (t) => {
  for (const source of REGISTRY.sources) {
    for (const sink of REGISTRY.sinks) {
      const lines = [`${source.word} ${sink.word}`, `${source.word} -- ${sink.word}`];
      if (sink.scope === 'local') lines.push(`${source.word} to-local ${sink.word}`);
      for (const line of lines) {
        if (source.scope === 'local' && sink.scope === 'global') {
          t.match(refused(line), /needs the state of the whole cluster.*kube, file, api$/);
        } else {
          const { source: from, sink: to } = run(line);
          t.strictSame([from.word, to.word], [source.word, sink.word]);
        }
      }
    }
  }
  t.end();
});

t.test('every way to write a flag means the same, anywhere on the line', (t) => {
  const lines = [
    'local to-json --v=4 --api=a:1 --node-name=n1',
    '-v=4 local -api=a:1 to-json -node-name n1',
    'local to-json --api a:1 --node-name=n1 --v 4',
    '--api a:1 --node-name n1 local -v4 to-json',
    'local --api=b:2 -v 1 to-json -v 4 --api=a:1 -node-name=n1',
  ];
  for (const line of lines) {
    const { source, sink, globals } = run(line);
    t.match(source.options, { target: { text: 'a:1' } }, line);
    t.match(sink.options, { nodeName: 'n1' }, line);
    t.equal(globals.v, 4, line);
  }
  for (const input of ['-i f', '-i=f', '-if', '-input=f', '--input f']) {
    t.match(run(`file ${input} to-json`).source.options, { input: 'f' }, input);
  }
  t.end();
});

t.test('what flags mean', (t) => {
  const range = { first: 36_000, last: 37_000 };
  const api = { kind: 'tcp', host: '127.0.0.1', port: 12_090 };
  const sources: [string, object][] = [
    ['file', { input: 'globalv1-state.yaml' }],
    ['file --input=a=b', { input: 'a=b' }],
    ['file --input -', { input: '-' }],
    ['local --tls-ca a --tls-crt c --tls-key k', { tls: { ca: 'a', crt: 'c', key: 'k' } }],
    ['kube --master http://x', { server: 'http://x' }],
    ['kube --with-node-labels=', { selection: { nodeLabels: [] } }],
    [
      'kube --with-service-labels a --with-service-annotations b --with-node-labels c --with-node-annotations d',
      {
        selection: {
          serviceLabels: ['a'],
          serviceAnnotations: ['b'],
          nodeLabels: ['c'],
          nodeAnnotations: ['d'],
        },
      },
    ],
    [
      'kube --with-service-labels a,b.* --with-service-labels={x\\{,y}z,,c',
      { selection: { serviceLabels: ['a', 'b.*', '{x\\{,y}z', 'c'] } },
    ],
  ];
  for (const [line, options] of sources) t.match(run(`${line} to-json`).source.options, options);
  const sinks: [string, object][] = [
    ['local to-winuserspace', { portRange: range }],
    ['local to-userspace --hostname-override n1', { nodeName: 'n1' }],
    ['local to-userspace --udp-timeout 9s', { limits: { udpIdleTimeoutMs: 9000 } }],
    [
      'local to-userspace --nodeport-addresses 10.0.0.0/8 --nodeport-addresses primary,::1',
      { nodePortAddresses: ['10.0.0.0/8', 'primary', '::1'] },
    ],
    ['local --cleanup-on-exit to-userspace --portal none', { cleanupOnExit: true, portal: 'none' }],
    ['local to-userspace -cleanup-on-exit=false', { cleanupOnExit: false }],
    ['local to-userspace --portal-interface kpng0', { portal: 'address' }],
    ['local to-userspace --portal address --portal-interface a', { portalInterface: 'a' }],
    ['local to-userspace --portal portproxy --portal-interface a', { portal: 'portproxy' }],
    ['local to-userspace --portal transparent', { engine: 'linux' }],
    ['kube to-api', { listen: api, apis: ['local', 'global'] }],
    ['kube to-api', { serverLimits: { maxWatchers: 10_000, maxMessageSize: 65_536 } }],
    ['kube to-api --listen tcp://:12090', { listen: { host: '' } }],
    ['kube to-api --local-api=false', { apis: ['global'] }],
    ['kube to-api --globalv1-api=false', { apis: ['local'] }],
    [
      'file to-api --listen-tls-crt c --listen-tls-key k --listen-tls-ca a',
      { tls: { crt: 'c', key: 'k', ca: 'a' } },
    ],
    ['api to-file', { output: 'global-state.yaml' }],
    ['api to-file -o x.yaml', { output: 'x.yaml' }],
  ];
  for (const [line, options] of sinks) t.match(run(line).sink.options, options, line);
  const fromEnv = run('local to-callout', { CALLOUT: 'jq' });
  t.match(fromEnv.sink.options, { callout: 'jq' });
  t.match(refused('local to-callout', { CALLOUT: '' }), /^CALLOUT \(for --callout\) "": expected/);
  const globals: [string, object][] = [
    ['--exportMetrics 127.0.0.1:9099', { metricsBindAddress: { host: '127.0.0.1', port: 9099 } }],
    ['--oom-score-adj -5', { oomScoreAdj: -5 }],
    ['--oom-score-adj=', { oomScoreAdj: undefined }],
  ];
  for (const [flags, options] of globals) t.match(run(`local to-json ${flags}`).globals, options);
  const off = run('local to-json --metrics-bind-address= --healthz-bind-address 0');
  t.equal(off.globals.metricsBindAddress, undefined);
  t.equal(off.globals.healthzBindAddress, undefined);
  t.same([...off.given].sort(), ['healthz-bind-address', 'metrics-bind-address']);
  t.end();
});

t.test('every limit has a flag that works', (t) => {
  const limits = Object.entries(LIMIT_NAMES).map(([limit, flag], index) => {
    const seconds = 10 + index;
    if (limit === 'connectTimeoutsMs') return { flag, text: '1s,2s', value: [1000, 2000], limit };
    const isTime = limit.endsWith('Ms');
    const value = isTime ? 1000 * seconds : 5000 + index;
    return { flag, text: isTime ? `${seconds}s` : String(value), value, limit };
  });
  const line = limits.map(({ flag, text }) => `--${flag} ${text}`).join(' ');
  const expected = Object.fromEntries(limits.map(({ limit, value }) => [limit, value]));
  t.same(userspaceOptions(line).limits, expected);
  t.end();
});

t.test('each kind of wrong command has its own message', (t) => {
  const cases: [string, RegExp][] = [
    ['', /no source was named/],
    ['file', /file: no backend was named/],
    ['file to-local', /no backend was named/],
    ['file to-local to-api', /to-api is not for one node: write file to-api without to-local/],
    ['demo', /run npm run demo/],
    [
      'files to-json',
      /unknown command "files" \(did you mean file\?\); sources are kube, file, api, local/,
    ],
    ['statu', /unknown command "statu" \(did you mean status\?\)/],
    ['to-json', /to-json needs a source before it/],
    ['to-local to-json', /to-local needs a source/],
    [
      'local to-jsn',
      /unknown backend "to-jsn" \(did you mean to-json\?\); backends are to-userspace,.*to-json/,
    ],
    ['local file', /file is a second source/],
    ['local to-iptables', /a backend of kpng that this program does not have/],
    ['local to-api', /to-api needs the state of the whole cluster.*kube, file, api$/],
    ['local to-json extra', /only flags may follow to-json: "extra"/],
    ['version 2', /only flags may follow version/],
    ['-v file to-json', /^--v "file": expected a whole number/],
  ];
  for (const [line, message] of cases) t.match(refused(line), message, line);
  t.end();
});

t.test('wrong flags are reported with the expected value', (t) => {
  const cases: [string, RegExp][] = [
    [
      'local to-userspace --udp-idle-timeot 30s',
      /^unknown flag --udp-idle-timeot \(did you mean --udp-idle-timeout\?\)/,
    ],
    ['local to-json --api', /^--api needs a value: --api <target>$/],
    ['local to-json --api --v=3', /^--api needs a value/],
    ['local to-json -udp-idle-timeot 30s', /^unknown flag --udp-idle-timeot \(did you mean/],
    ['local to-json -x', /unknown flag -x/],
    ['local to-json --bind-address 1.1.1.1', /--bind-address is a flag of to-userspace/],
    ['local to-json -v=11', /--v "11": expected a whole number from 0 to 10/],
    ['local to-json --api multi:///a:1', /--api "multi:\/\/\/a:1": several targets/],
    [
      'local to-json --api-client-tls-crt x',
      /--api-client-tls-crt and --api-client-tls-key: give both/,
    ],
    ['file to-json --input=', /--input "": expected a path/],
    ['local to-json --node-name=', /--node-name "": not the name of a node/],
    [
      'local to-userspace --portal ipvs',
      /--portal "ipvs": expected auto, nftables, transparent, iptables, address, portproxy, none/,
    ],
    ['local to-userspace --portal-chain-prefix KUBERNETES', /cannot be what iptables chains begin/],
    ['local to-userspace --portal-table 1x', /"1x" cannot be the name of an nftables table/],
    [
      'local to-userspace --portal nftables --portal-interface eth0',
      /--portal-interface goes with --portal address; nftables adds no addresses/,
    ],
    ['local to-userspace --nodeport-addresses 10.0.0.0/33', /"10\.0\.0\.0\/33"/],
    ['local to-userspace --cluster-cidr 10.0.0.0', /"10\.0\.0\.0": expected a network/],
    ['local to-userspace --port-range 5-1', /range of ports/],
    ['local to-userspace --bind-address localhost', /expected an IP address/],
    ['local --cleanup-on-exit true to-userspace', /unknown backend "true"/],
    ['local to-json --oom-score-adj=-1001', /from -1000 to 1000/],
    ['kube --with-service-labels a[ to-json', /no \] for the \[/],
    ['kube --service-proxy-name=-x to-json', /service-proxy-name/],
    ['local to-callout --callout=', /--callout "": expected the path of a program/],
    ['kube to-api --listen nowhere', /^--listen "nowhere"/],
    ['kube to-api --local-api=false --globalv1-api=false', /both off/],
    ['file to-api --listen-tls-ca ca', /needs both --listen-tls-crt and --listen-tls-key/],
    ['file to-api --listen-tls-crt c', /needs both/],
    ['api to-file --output=', /expected a path/],
    [
      'local to-json --metrics-bind-address 0.0.0.0:1 --metrics-authentication delegated',
      /needs --metrics-tls-crt/,
    ],
  ];
  for (const [line, message] of cases) t.match(refused(line), message, line);
  t.end();
});

t.test('flags of klog and kube-proxy get a warning, or an error that says what to do', (t) => {
  const line =
    'local --logtostderr -alsologtostderr=true --vmodule=a=2 --log_file /x --stderrthreshold 2 ' +
    '--detect-local-mode NodeCIDR --masquerade-all --proxy-mode userspace to-userspace';
  t.match(run(line).ignored, [
    {
      flags: ['--logtostderr', '--alsologtostderr', '--vmodule', '--log-file', '--stderrthreshold'],
      why: /standard error; use -v/,
    },
    { flags: ['--detect-local-mode'], why: /recognized by --cluster-cidr/ },
    { flags: ['--masquerade-all'] },
    { flags: ['--proxy-mode'] },
  ]);
  const errors: [string, RegExp][] = [
    ['kube to-userspace --proxy-mode=ipvs', /^--proxy-mode=ipvs: .*userspace only.*--portal/],
    ['kube to-userspace --cleanup', /^--cleanup: use the command cleanup/],
    ['kube to-userspace --write-config-to x', /config print/],
    ['kube to-userspace --windows-service', /command service/],
  ];
  for (const [each, message] of errors) t.match(refused(each), message, each);
  t.end();
});

t.test('help for as much as was named', (t) => {
  const topics: [string, string][] = [
    ['--help', 'nothing'],
    ['help', 'nothing'],
    ['help local', 'source'],
    ['file -help', 'source'],
    ['file to-local --help', 'source'],
    ['help local to-json', 'command'],
    ['local to-userspace --api x:1 -h', 'command'],
    ['version --help', 'other'],
    ['help service', 'other'],
    ['cleanup --portal-table x -h', 'other'],
  ];
  for (const [line, kind] of topics) {
    t.match(parse(words(line)), { kind: 'help', topic: { kind } }, line);
  }
  t.match(refused('help nonsense'), /unknown command/);
  for (const way of ['version', '--version', '-version']) {
    t.match(parse([way]), { kind: 'other', topic: { command: { word: 'version' } } }, way);
  }
  t.end();
});

t.test('an error that is not about usage is not taken for one', (t) => {
  const broken = {
    get KPNG_V(): string {
      throw new TypeError('a mistake of ours');
    },
  };
  t.throws(() => parse(['local', 'to-json'], broken), TypeError);
  t.end();
});

t.test('no command line makes the parser fail unexpectedly', (t) => {
  const usual =
    'file local to-local to-json to-userspace version help --help -v=4 -v --api --api=x:1 -- - ' +
    '--input --node-name=n -i --constructor --__proto__=1 --__proto__ __proto__ --no-v --v= ' +
    '--portal=none';
  const argument = fc.oneof(fc.constantFrom('', ...words(usual)), fc.string({ maxLength: 8 }));
  holds(
    t,
    fc.property(fc.array(argument, { maxLength: 8 }), (argv) => {
      const { kind } = parse(argv);
      return ['run', 'help', 'other', 'usage-error'].includes(kind);
    }),
  );
  t.end();
});
