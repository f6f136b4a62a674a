import * as fc from 'fast-check';
import t from 'tap';
import { parse, parseRun, topicWords } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { KpngError } from '../../src/errors.ts';
import { runHere } from '../support/cli.ts';
import { given, refused, run, words } from '../support/command-lines.ts';
import { holds } from '../support/property.ts';

t.test('every source combines with every sink, but local, which knows one node only', async (t) => {
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
});

t.test('every way to write a flag means the same, anywhere on the line', async (t) => {
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
});

/** Command lines, and what becomes of the options of their source, of their sink, or of all commands. */
const MEANINGS = String.raw`
file to-json => source {"input":"globalv1-state.yaml"}
file --input=a=b to-json => source {"input":"a=b"}
file --input - to-json => source {"input":"-"}
local --tls-ca a --tls-crt c --tls-key k to-json => source {"tls":{"ca":"a","crt":"c","key":"k"}}
kube --master http://x to-json => source {"server":"http://x"}
kube --with-node-labels= to-json => source {"withNodeLabels":[]}
kube --with-service-labels a,b.* --with-service-labels={x\{,y}z,,c to-json => source {"withServiceLabels":["a","b.*","{x\\{,y}z","c"]}
local to-winuserspace => sink {"portRange":{"first":36000,"last":37000}}
local to-userspace --hostname-override n1 => sink {"nodeName":"n1"}
local to-userspace --udp-timeout 9s => sink {"limits":{"udpIdleTimeoutMs":9000}}
local to-userspace --nodeport-addresses 10.0.0.0/8 --nodeport-addresses primary,::1 => sink {"nodePortAddresses":["10.0.0.0/8","primary","::1"]}
local --cleanup-on-exit to-userspace => sink {"cleanupOnExit":true}
local to-userspace -cleanup-on-exit=false => sink {"cleanupOnExit":false}
local to-userspace --portal none => sink {"portal":"none"}
local to-userspace --portal-interface kpng0 => sink {"portal":"address"}
local to-userspace --portal address --portal-interface a => sink {"portalInterface":"a"}
local to-userspace --portal portproxy --portal-interface a => sink {"portal":"portproxy"}
local to-userspace --portal transparent => sink {"engine":"linux"}
kube to-api => sink {"listen":{"kind":"tcp","host":"127.0.0.1","port":12090}}
kube to-api => sink {"apis":["local","global"]}
kube to-api => sink {"serverLimits":{"maxWatchers":10000,"maxMessageSize":65536}}
kube to-api --listen tcp://:12090 => sink {"listen":{"host":""}}
kube to-api --local-api=false => sink {"apis":["global"]}
kube to-api --globalv1-api=false => sink {"apis":["local"]}
file to-api --listen-tls-crt c --listen-tls-key k --listen-tls-ca a => sink {"tls":{"ca":"a","crt":"c","key":"k"}}
api to-file => sink {"output":"global-state.yaml"}
api to-file -o x.yaml => sink {"output":"x.yaml"}
local to-json --exportMetrics 127.0.0.1:9 => all {"metricsBindAddress":{"port":9}}
local to-json --oom-score-adj -5 => all {"oomScoreAdj":-5}
`;

t.test('what flags mean', async (t) => {
  for (const row of MEANINGS.trim().split('\n')) {
    const [, line = '', part, expected = ''] = /^(.*) => (\w+) (.*)$/.exec(row) ?? [];
    const { source, sink, globals } = run(line);
    const options: unknown = part === 'all' ? globals : (part === 'sink' ? sink : source).options;
    t.match(options, JSON.parse(expected), row);
  }
  t.equal(run('local to-json --oom-score-adj=').globals.oomScoreAdj, undefined);
  t.match(run('local to-callout', { CALLOUT: 'jq' }).sink.options, { callout: 'jq' });
  t.match(refused('local to-callout', { CALLOUT: '' }), /^CALLOUT \(for --callout\) "": expected/);
  const off = run('local to-json --metrics-bind-address= --healthz-bind-address 0');
  t.equal(off.globals.metricsBindAddress, undefined);
  t.equal(off.globals.healthzBindAddress, undefined);
  t.same(given(off), ['metrics-bind-address', 'healthz-bind-address']);
});

t.test('each kind of value is written in its short form', async (t) => {
  for (const [flag, text] of [
    ['--hold-timeout=90s', '1m30s'],
    ['--hold-timeout=576h', '576h'],
    ['--connect-timeouts=250ms,500ms, 1s', '250ms,500ms,1s'],
    ['--metrics-bind-address=[::1]:1', '[::1]:1'],
    ['--metrics-bind-address=0', ''],
    ['--port-range=36000-37000', '36000-37000'],
    ['--port-range=0-0', ''],
    ['--nodeport-addresses=primary, ::1,,', 'primary,::1'],
    ['--nodeport-addresses=', ''],
    ['--udp-socket-buffer=4096', '4Ki'],
    ['--portal-mark=64', '0x40'],
  ] as const) {
    const { settings } = parseRun(['local', 'to-userspace', flag]);
    const setting = settings.find((each) => flag.startsWith(`--${each.flag}=`));
    t.equal(setting?.text, text, flag);
  }
});

/** Command lines, and what their error says. */
const REFUSED = `
=> no source was named
file => file: no backend was named
file to-local => no backend was named
file to-local to-api => to-api is not for one node: write file to-api without to-local
demo => run npm run demo
files to-json => unknown command "files" (did you mean file?); sources are kube, file, api, local
statu => unknown command "statu" (did you mean status?)
to-json => to-json needs a source before it
to-local to-json => to-local needs a source
local to-jsn => unknown backend "to-jsn" (did you mean to-json?); backends are to-userspace,
local file => file is a second source
local to-iptables => a backend of kpng that this program does not have
local to-api => to-api needs the state of the whole cluster
local to-api => use one of the sources kube, file, api
local to-json extra => only flags may follow to-json: "extra"
version 2 => only flags may follow version
help nonsense => unknown command
-v file to-json => --v "file": expected a whole number
local to-userspace --udp-idle-timeot 30s => unknown flag --udp-idle-timeot (did you mean --udp-idle-timeout?)
local to-json -x => unknown flag -x
local to-json --api => --api needs a value: --api <target>
local to-json --api --v=3 => --api needs a value
local to-json --bind-address 1.1.1.1 => --bind-address is a flag of to-userspace
local to-json -v=11 => --v "11": expected a whole number from 0 to 10
local to-json -v=1.5 => whole number
local to-json -v= => whole number
local to-json -v=0x3 => whole number
local to-json --metrics-bind-address=localhost:80 => expected ip:port
local to-json --oom-score-adj=-1001 => from -1000 to 1000
local to-json --api multi:///a:1 => --api "multi:///a:1": several targets
local to-json --api-client-tls-crt x => --api-client-tls-crt and --api-client-tls-key: give both
local to-json --node-name= => --node-name "": not the name of a node
local to-json --metrics-bind-address 0.0.0.0:1 --metrics-authentication delegated => needs --metrics-tls-crt
file to-json --input= => --input "": expected a path
kube --with-service-labels a[ to-json => no ] for the [
kube --service-proxy-name=-x to-json => service-proxy-name
local to-userspace --max-connections=0 => at least 1
local to-userspace --udp-idle-timeout=30 => with a unit
local to-userspace --udp-idle-timeout=0 => at least 1ms
local to-userspace --udp-idle-timeout=600h => at most 24 days
local to-userspace --connect-timeouts=1s, => with a unit
local to-userspace --connect-timeouts=1s${',1s'.repeat(16)} => at most 16
local to-userspace --udp-socket-buffer=1 => expected 4Ki to 1Gi
local to-userspace --udp-socket-buffer=lots => number of bytes
local to-userspace --portal-mark=0 => from 0x1
local to-userspace --portal-mark=0x1ffffffff => from 0x1
local to-userspace --portal ipvs => expected auto, nftables, transparent, iptables, address, portproxy, none
local to-userspace --portal-chain-prefix KUBERNETES => cannot be what iptables chains begin
local to-userspace --portal-table 1x => "1x" cannot be the name of an nftables table
local to-userspace --portal nftables --portal-interface eth0 => --portal-interface goes with --portal address; nftables adds no addresses
local to-userspace --nodeport-addresses 10.0.0.0/33 => "10.0.0.0/33"
local to-userspace --cluster-cidr 10.0.0.0 => "10.0.0.0": expected a network
local to-userspace --port-range 5-1 => range of ports
local to-userspace --bind-address localhost => expected an IP address
local --cleanup-on-exit true to-userspace => unknown backend "true"
local to-callout --callout= => --callout "": expected the path of a program
local to-extip --iptables-chain-prefix=- => expected up to 20 letters
kube to-api --listen nowhere => --listen "nowhere"
kube to-api --local-api=false --globalv1-api=false => both off
file to-api --listen-tls-ca ca => needs both --listen-tls-crt and --listen-tls-key
api to-file --output= => expected a path
kube to-userspace --proxy-mode => --proxy-mode=true: this program proxies in userspace only
kube to-userspace --proxy-mode=ipvs => --proxy-mode=ipvs: this program proxies in userspace only; leave the flag out and select with --portal
kube to-userspace --cleanup => --cleanup: use the command cleanup
kube to-userspace --write-config-to x => config print
kube to-userspace --windows-service => command service
`;

t.test('each kind of wrong command line has its own message', async (t) => {
  for (const row of REFUSED.trim().split('\n')) {
    const [line = '', text = ''] = row.split('=> ');
    t.match(refused(line), text, line);
  }
});

t.test('flags of klog and kube-proxy without a meaning here get a warning', async (t) => {
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
});

t.test('help for as much as was named', async (t) => {
  for (const [line, named] of Object.entries({
    '--help': '',
    help: '',
    'help local': 'local',
    'file -help': 'file',
    'file to-local --help': 'file',
    'help local to-json': 'local to-json',
    'local to-userspace --api x:1 -h': 'local to-userspace',
    'version --help': 'version',
    'help service': 'service',
    'cleanup --portal-table x -h': 'cleanup',
  })) {
    const invocation = parse(words(line));
    t.equal('topic' in invocation && topicWords(invocation.topic).join(' '), named, line);
  }
  for (const way of ['version', '--version', '-version']) {
    t.match(await runHere(way), { code: 0, stdout: /^kpng-userspace: \d+\.\d+\.\d+\nnode: / });
  }
});

t.test('no command line makes the parser fail unexpectedly', async (t) => {
  const usual =
    'file local to-local to-json to-userspace version help --help -v=4 -v --api --api=x:1 -- - ' +
    '--input --node-name=n -i --constructor --__proto__=1 --__proto__ __proto__ --no-v --v= ' +
    '--portal=none';
  const argument = fc.oneof(fc.constantFrom('', ...words(usual)), fc.string({ maxLength: 8 }));
  holds(
    t,
    fc.property(fc.array(argument, { maxLength: 8 }), (argv) => {
      try {
        return ['run', 'help', 'other'].includes(parse(argv).kind);
      } catch (error) {
        return error instanceof KpngError && error.code === 'KPNG_USAGE';
      }
    }),
  );
});
