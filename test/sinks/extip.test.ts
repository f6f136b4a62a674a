import t from 'tap';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { extipProblem } from '../../src/sinks/events.ts';
import { ExtipSink, type ExtipOptions } from '../../src/sinks/extip.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import { exits, FakeExec, type Reaction } from '../support/fake-exec.ts';
import { endpoint, entry, ports, TestView } from '../support/messages.ts';
import { collect } from '../support/sockets.ts';

const MISSING: Reaction = { fails: 'missing' };
const [RESTORE4, RESTORE6] = [
  'iptables-restore --noflush -w 5',
  'ip6tables-restore --noflush -w 5',
];

/** A service with external IPs and endpoints by address. */
function external(
  key: string,
  v4: string[],
  endpoints: readonly string[],
  more: DeepPartial<Service> = {},
): ServiceEntry {
  const ips = { externalIPs: { v4 } };
  const byKey = Object.fromEntries(endpoints.map((ip) => [ip, endpoint(ip)]));
  return entry(key, { ips, ports: ports('http TCP 80 8080'), ...more }, byKey);
}

/** A service of both families. */
function web(ip: string, number = 80): ServiceEntry {
  const externalIPs = ip.includes(':') ? { v6: [ip] } : { v4: [ip] };
  const both = { v4: ['10.1.0.5'], v6: ['fd00::5'] };
  const more = { ips: { externalIPs }, ports: ports(`http TCP ${number} 8080`) };
  return entry('d/web', more, { a: endpoint('', { ips: both }) });
}

function rig(options: Partial<ExtipOptions> = {}, react: (family: 4 | 6) => Reaction = () => ({})) {
  const fake = new FakeExec(({ file }) => react(file.startsWith('ip6') ? 6 : 4));
  const sink = new ExtipSink({
    exec: fake.exec,
    tools: async () => ({ name: 'iptables', flavor: 'nft', version: '1.8.9' }),
    chainPrefix: 'k8s-',
    loadBalancersOnly: false,
    ...options,
  });
  const sync = (...entries: ServiceEntry[]) => sink.sync(new TestView().set(...entries));
  return { fake, sync };
}

/** What the sink writes of one family. */
async function written(family: 4 | 6, entries: ServiceEntry[], options?: Partial<ExtipOptions>) {
  const { fake, sync } = rig(options);
  await sync(...entries);
  const text = String(fake.commands[family === 4 ? 0 : 1]?.stdin);
  /** The rules of one chain, without its name. */
  const chain = (name: string): string[] =>
    [...text.matchAll(new RegExp(`^-A k8s-${name} (.*)$`, 'gm'))].map(([, rule = '']) => rule);
  return { text, chain };
}

t.test('three chains in two tables, each table a transaction', async (t) => {
  const { text } = await written(4, [external('d/web', ['192.0.2.1'], ['10.1.0.5', '10.1.0.6'])]);
  t.equal(
    text,
    `*filter
:k8s-forward - [0:0]
-A k8s-forward -d 10.1.0.5 -p tcp -m tcp --dport 8080 -j ACCEPT
-A k8s-forward -d 10.1.0.6 -p tcp -m tcp --dport 8080 -j ACCEPT
COMMIT
*nat
:k8s-DNAT - [0:0]
:k8s-SNAT - [0:0]
-A k8s-DNAT -d 192.0.2.1 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.5000000000 -j DNAT --to-destination 10.1.0.5:8080
-A k8s-DNAT -d 192.0.2.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.6:8080
-A k8s-SNAT -s 10.1.0.5 -j SNAT --to-source 192.0.2.1
-A k8s-SNAT -s 10.1.0.6 -j SNAT --to-source 192.0.2.1
COMMIT
`,
  );
  const six = await written(6, [web('2001:db8::1')]);
  t.same(six.chain('DNAT'), [
    '-d 2001:db8::1 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::5]:8080',
  ]);
  t.notMatch(six.text, /10\.1\.0/);
});

t.test('services without an external IP have none, and other types can be left out', async (t) => {
  const entries = [
    external('d/inner', [], ['10.1.0.1'], { ips: { clusterIPs: { v4: ['10.96.0.1'] } } }),
    external('d/plain', ['192.0.2.1'], ['10.1.0.2']),
    external('d/balanced', ['192.0.2.2'], ['10.1.0.3'], { type: 'LoadBalancer' }),
  ];
  t.same((await written(4, entries)).chain('SNAT').length, 2);
  const { chain } = await written(4, entries, { loadBalancersOnly: true });
  t.same(chain('SNAT'), ['-s 10.1.0.3 -j SNAT --to-source 192.0.2.2']);
});

t.test('the source of a shared endpoint is the lowest of the first external IPs', async (t) => {
  const { chain } = await written(4, [
    external('d/a', ['192.0.2.10', '192.0.2.1'], ['10.1.0.5']),
    external('d/b', ['192.0.2.9'], ['10.1.0.5']),
  ]);
  t.same(chain('SNAT'), ['-s 10.1.0.5 -j SNAT --to-source 192.0.2.9'], '9 is below 10');
  t.equal(chain('forward').length, 1, 'and is let through once');
});

t.test('named target ports, protocols, endpoints not for external clients', async (t) => {
  const portOverrides = ports('dns UDP 5353', 'sctp SCTP 7');
  const more = {
    ips: { externalIPs: { v4: ['192.0.2.1'] } },
    ports: ports('dns UDP 53 dns-udp', 'sctp SCTP 7 7'),
  };
  const { chain } = await written(4, [
    entry('d/dns', more, {
      a: endpoint('10.1.0.5', { portOverrides }),
      b: endpoint('10.1.0.6', { scopes: { internal: true, external: false } }),
    }),
  ]);
  t.same(chain('DNAT'), [
    '-d 192.0.2.1 -p udp -m udp --dport 53 -j DNAT --to-destination 10.1.0.5:5353',
    '-d 192.0.2.1 -p sctp -m sctp --dport 7 -j DNAT --to-destination 10.1.0.5:7',
  ]);
});

t.test('ports that cannot be redirected are reported once; the rest works', async (t) => {
  const told = collect(t, extipProblem);
  const bad = [
    { name: 'bad', protocol: 9 as 1, port: 80 },
    ...ports('- TCP 70000', 'http TCP 80 8080'),
  ];
  const entries = [
    external('d/a', ['192.0.2.1'], ['10.1.0.5']),
    external('d/b', ['192.0.2.1', '192.0.2.2'], ['10.1.0.6']),
    external('d/c', ['192.0.2.3'], ['10.1.0.7'], { ports: bad }),
  ];
  const { fake, sync } = rig();
  await sync(...entries);
  await sync(...entries);
  const conflict = /192\.0\.2\.1: d\/a has it$/;
  t.match(told, [
    { error: { code: 'KPNG_PORTAL_CONFLICT', servicePort: 'd/b:http', message: conflict } },
    { error: { code: 'KPNG_SERVICE_INVALID', servicePort: 'd/c:bad' } },
    { error: { code: 'KPNG_SERVICE_INVALID', servicePort: 'd/c', message: / port 70000, / } },
  ]);
  t.equal(told.length, 3);
  t.equal(String(fake.commands[0]?.stdin).split(' -j DNAT ').length, 4);
  await sync();
  await sync(...entries);
  t.equal(told.length, 6, 'they had gone');
});

t.test('nothing but addresses gets into a script', async (t) => {
  const evil = '192.0.2.1\nCOMMIT\n*nat';
  const { text, chain } = await written(4, [
    external('d/evil', [evil, '-j', '192.0.2.1/0'], ['10.1.0.5', 'x\n-F']),
    external('d/good', ['192.0.2.2'], ['10.1.0.6', '10.1.0.7 -j DROP']),
  ]);
  t.same(chain('DNAT').length, 1);
  t.equal(text.split('\n').length, 11);
});

t.test('one run for each family, and only where something differs', async (t) => {
  const { fake, sync } = rig();
  await sync(web('192.0.2.1'));
  t.same(fake.lines, [RESTORE4, RESTORE6], 'also where there are none, so that old ones go');
  await sync(web('192.0.2.1'));
  await sync(web('192.0.2.2'));
  await sync();
  t.same(fake.lines.slice(2), [RESTORE4, RESTORE4]);
  t.notMatch(fake.commands[2]?.stdin, /192\.0\.2\.1\b/);
  t.notMatch(fake.commands[3]?.stdin, /^-A/m);
});

t.test('a failure fails the sync with its code, and the rules are written again', async (t) => {
  let broken = true;
  const { fake, sync } = rig({}, (family) =>
    family === 4 && broken ? exits('iptables-restore: Permission denied (you must be root)') : {},
  );
  await t.rejects(sync(web('192.0.2.1')), {
    code: 'KPNG_PORTAL_PERMISSION',
    message: /^writing the rules of IPv4 external IPs: /,
  });
  broken = false;
  await sync(web('192.0.2.1'));
  t.same(fake.lines, [RESTORE4, RESTORE6, RESTORE4], 'the other family was written at once');
  broken = true;
  await t.rejects(sync(web('192.0.2.2')));
  broken = false;
  await sync(web('192.0.2.1'));
  t.equal(fake.lines.length, 5, 'some of it may have been written');
});

t.test('a host without IPv6 is fine, until a service needs it', async (t) => {
  const { sync } = rig({}, (family) => (family === 6 ? MISSING : {}));
  await sync(web('192.0.2.1'));
  await t.rejects(sync(web('2001:db8::1')), { code: 'KPNG_PORTAL_TOOL_MISSING' });
  const without4 = rig({}, (family) => (family === 4 ? MISSING : {}));
  await t.rejects(without4.sync(), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});
