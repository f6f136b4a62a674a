import { hostname } from 'node:os';
import * as fc from 'fast-check';
import t from 'tap';
import { defineSource, type Registry, defineSink } from '../../src/cli/command.ts';
import { integer, text } from '../../src/cli/flags/kinds.ts';
import { flag, group } from '../../src/cli/flags/table.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { refused, run, words } from '../support/command-lines.ts';
import { holds } from '../support/property.ts';

t.test('sources and backends, with and without to-local', (t) => {
  const lines: [string, string, string][] = [
    ['file to-local to-userspace', 'file', 'to-userspace'],
    ['file to-local to-json', 'file', 'to-json'],
    ['file to-json', 'file', 'to-json'],
    ['file to-userspace', 'file', 'to-userspace'],
    ['file -- to-json', 'file', 'to-json'],
    ['local to-userspace', 'local', 'to-userspace'],
    ['local to-local to-userspace', 'local', 'to-userspace'],
    ['local to-json', 'local', 'to-json'],
    ['local to-userspacelin', 'local', 'to-userspacelin'],
    ['local to-winuserspace', 'local', 'to-winuserspace'],
  ];
  for (const [line, source, sink] of lines) {
    const { source: s, sink: b } = run(line);
    t.same([s.word, b.word], [source, sink], line);
  }
  t.end();
});

t.test('defaults are those of kpng and kube-proxy', (t) => {
  const { source, sink, globals, given } = run('local to-userspace');
  t.match(source.options, { target: { text: '127.0.0.1:12090' }, maxMessageSize: 4_194_304 });
  t.match(sink.options, {
    nodeName: hostname(),
    portal: 'auto',
    portalTable: 'kpng-userspace',
    cleanupOnExit: false,
    engine: 'auto',
    bindAddress: '0.0.0.0',
    portRange: undefined,
    nodePortAddresses: [],
    limits: { connectTimeoutsMs: [250, 500, 1000, 2000], udpIdleTimeoutMs: 30_000 },
  });
  t.match(globals, {
    v: 0,
    loggingFormat: undefined,
    metricsBindAddress: { host: '127.0.0.1', port: 10_249 },
    healthzBindAddress: { host: '0.0.0.0', port: 10_256 },
    errorDelay: 1000,
    drainDelay: 0,
    drainTimeout: 5000,
  });
  t.equal(given.size, 0);
  t.match(run('file to-json').source.options, { input: 'globalv1-state.yaml' });
  t.match(run('local to-winuserspace').sink.options, {
    portRange: { first: 36_000, last: 37_000 },
  });
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
  t.match(run('file --input=a=b to-json').source.options, { input: 'a=b' });
  t.match(run('file --input - to-json').source.options, { input: '-' });
  t.end();
});

t.test('other names of flags', (t) => {
  const { globals, source } = run(
    'local --exportMetrics 127.0.0.1:9099 --tls-ca ca --tls-crt c --tls-key k to-json',
  );
  t.match(
    run('kube --master http://a --hostname-override n1 --udp-timeout 9s to-userspace').sink.options,
    { nodeName: 'n1', limits: { udpIdleTimeoutMs: 9000 } },
    'those of kube-proxy',
  );
  t.same(globals.metricsBindAddress, { host: '127.0.0.1', port: 9099 });
  t.match(source.options, { tls: { ca: 'ca', crt: 'c', key: 'k' } });
  t.end();
});

t.test('servers are switched off by an empty value or 0', (t) => {
  const { globals, given } = run('local to-json --metrics-bind-address= --healthz-bind-address 0');
  t.equal(globals.metricsBindAddress, undefined);
  t.equal(globals.healthzBindAddress, undefined);
  t.same([...given].sort(), ['healthz-bind-address', 'metrics-bind-address']);
  t.end();
});

t.test('lists of a repeated flag are joined', (t) => {
  const { sink } = run(
    'local to-userspace --nodeport-addresses 10.0.0.0/8 --nodeport-addresses primary,::1',
  );
  t.match(sink.options, { nodePortAddresses: ['10.0.0.0/8', 'primary', '::1'] });
  t.end();
});

t.test('every limit has a flag that works', (t) => {
  const { sink } = run(
    'local to-userspace --connect-timeouts 1s,2s --half-close-timeout 3s ' +
      '--endpoint-grace-period 4s --tcp-keepalive 5s --udp-idle-timeout 6s --max-connections 7 ' +
      '--max-udp-sessions 8 --reserved-descriptors 9 --max-affinity-clients 10 --backlog 11 ' +
      '--bulk-buffer-budget 12Ki --udp-socket-buffer 13Ki --udp-send-queue 14 ' +
      '--udp-wildcard-sockets 15 --hold-timeout 16s --max-held-connections 17 ' +
      '--max-affinity-clients-total 18',
  );
  t.match(sink.options, {
    limits: {
      connectTimeoutsMs: [1000, 2000],
      halfCloseTimeoutMs: 3000,
      endpointGraceMs: 4000,
      keepAliveMs: 5000,
      udpIdleTimeoutMs: 6000,
      maxConnections: 7,
      maxUdpSessions: 8,
      reservedDescriptors: 9,
      maxAffinityClients: 10,
      backlog: 11,
      bulkBufferBudget: 12 * 1024,
      udpSocketBuffer: 13 * 1024,
      udpSendQueueBytes: 14,
      udpWildcardSockets: 15,
      holdTimeoutMs: 16_000,
      maxHeldConnections: 17,
      maxAffinityClientsTotal: 18,
    },
  });
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
    ['clean', /unknown command "clean" \(did you mean cleanup\?\)/],
    ['undrian default/web', /unknown command "undrian" \(did you mean undrain\?\)/],
    ['confg print', /unknown command "confg" \(did you mean config\?\)/],
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
    ['local to-userspace --udp-idle-timeout 30', /^--udp-idle-timeout "30": expected a duration/],
    [
      'local to-userspace --udp-idle-timeot 30s',
      /^unknown flag --udp-idle-timeot \(did you mean --udp-idle-timeout\?\)/,
    ],
    ['local to-json --api', /^--api needs a value: --api <target>$/],
    ['local to-json --api --v=3', /^--api needs a value/],
    ['local to-json -udp-idle-timeot 30s', /^unknown flag --udp-idle-timeot \(did you mean/],
    ['local to-json --v -3', /^--v "-3": expected a whole number/],
    ['local to-json -x', /unknown flag -x/],
    ['local to-json --bind-address 1.1.1.1', /--bind-address is a flag of to-userspace/],
    ['local to-json --input x', /--input is a flag of file/],
    ['version --api x', /--api is a flag of api, local/],
    ['local to-json -v=11', /--v "11": expected a whole number from 0 to 10/],
    [
      'local to-json --metrics-bind-address 10249',
      /--metrics-bind-address "10249": expected ip:port/,
    ],
    ['local to-json --logging-format xml', /expected text, json/],
    ['local to-json --api multi:///a:1', /--api "multi:\/\/\/a:1": several targets/],
    [
      'local to-json --api-client-tls-crt x',
      /--api-client-tls-crt and --api-client-tls-key: give both/,
    ],
    ['local to-json --tls-crt x', /^--tls-crt and --tls-key: give both or neither/],
    ['file to-json --input=', /--input "": expected a path/],
    ['local to-json --node-name=', /--node-name "": not the name of a node/],
    ['local to-json --node-name a/b', /not the name of a node/],
    [
      'local to-userspace --portal ipvs',
      /--portal "ipvs": expected auto, nftables, transparent, iptables, address, portproxy, none/,
    ],
    ['local to-userspace --portal-chain-prefix KUBERNETES', /cannot be what iptables chains begin/],
    ['local to-userspace --kube-proxy-userspace', /--kube-proxy-userspace is a flag of cleanup/],
    ['local to-userspace --portal-table 1x', /"1x" cannot be the name of an nftables table/],
    ['local to-userspace --cleanup-on-exit=maybe', /expected true, false/],
    ['cleanup --portal-table=', /"" cannot be the name of an nftables table/],
    ['cleanup now', /only flags may follow cleanup: "now"/],
    ['cleanup --node-name x', /--node-name is a flag of/],
    ['local cleanup', /unknown backend "cleanup"/],
    ['local to-userspace --engine windows', /expected auto, node, linux/],
    [
      'local to-userspace --portal nftables --portal-interface eth0',
      /--portal-interface goes with --portal address; nftables adds no addresses/,
    ],
    ['local to-userspace --nodeport-addresses 10.0.0.0/33', /"10\.0\.0\.0\/33"/],
    ['local to-userspace --cluster-cidr 10.0.0.0', /"10\.0\.0\.0": expected a network/],
    ['local to-userspace --port-range 5-1', /range of ports/],
    ['local to-userspace --bind-address localhost', /expected an IP address/],
    ['local to-userspace --max-connections 0', /at least 1/],
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

t.test('a flag that is on or off takes no word for its value', (t) => {
  const options = (line: string) => run(line).sink.options;
  t.match(options('local to-userspace'), { cleanupOnExit: false });
  t.match(options('local --cleanup-on-exit to-userspace --portal none'), {
    cleanupOnExit: true,
    portal: 'none',
  });
  t.match(options('local to-userspace -cleanup-on-exit=false'), { cleanupOnExit: false });
  t.match(refused('local --cleanup-on-exit true to-userspace'), /unknown backend "true"/);
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

t.test('a flag can come from the environment, unless it is given', (t) => {
  const registry: Registry = {
    ...REGISTRY,
    sources: [
      defineSource({
        word: 'test',
        summary: '',
        description: [],
        examples: [],
        flags: group('', {
          config: flag(text('x'), 'd', '', { env: 'TEST_CONFIG' }),
          level: flag(integer(0), 0, '', { env: 'TEST_LEVEL' }),
        }),
        read: (values) => values,
        start: () => Promise.reject(new Error('not started here')),
      }),
    ],
  };
  const read = (argv: string[], env: Record<string, string>) => {
    const invocation = parse(argv, env, registry);
    return invocation.kind === 'run' ? invocation.source.options : invocation;
  };
  const line = ['test', 'to-json'];
  t.same(read(line, {}), { config: 'd', level: 0 });
  t.same(read(line, { TEST_CONFIG: 'e', TEST_LEVEL: '3' }), { config: 'e', level: 3 });
  t.same(read([...line, '--config=f'], { TEST_CONFIG: 'e' }), { config: 'f', level: 0 });
  t.match(read(line, { TEST_LEVEL: 'x' }), {
    kind: 'usage-error',
    error: { message: /^TEST_LEVEL \(for --level\) "x": expected/ },
  });
  t.end();
});

t.test('an error that is not about usage is not taken for one', (t) => {
  const broken = defineSink({
    word: 'to-broken',
    summary: '',
    description: [],
    examples: [],
    flags: {},
    read(): { nodeName: string } {
      throw new TypeError('a mistake of ours');
    },
    start: () => Promise.reject(new Error('not started here')),
  });
  const registry = { ...REGISTRY, sinks: [broken] };
  t.throws(() => parse(['local', 'to-broken'], {}, registry), TypeError);
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
