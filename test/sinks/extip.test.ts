import t from 'tap';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import type { Tools } from '../../src/portal/iptables/tools.ts';
import { extipProblem } from '../../src/sinks/events.ts';
import { extipRules, ExtipSink } from '../../src/sinks/extip.ts';
import type { LocalChange, LocalView, ServiceEntry } from '../../src/store/local-view.ts';
import { exits, FakeExec, type Reaction } from '../support/fake-exec.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import { collect } from '../support/sockets.ts';

const OPTIONS = { chainPrefix: 'k8s-', loadBalancersOnly: false };
const HTTP = [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }] as const;

function change(...entries: ServiceEntry[]): LocalChange {
  return new TestView().set(...entries);
}

function viewOf(...entries: ServiceEntry[]): LocalView {
  return change(...entries).view;
}

/** A service with external IPs of IPv4 and endpoints by address. */
function external(
  key: string,
  ips: readonly string[],
  endpoints: readonly string[],
  more: DeepPartial<Service> = {},
): ServiceEntry {
  return entry(
    key,
    { ips: { externalIPs: { v4: [...ips] } }, ports: [...HTTP], ...more },
    Object.fromEntries(endpoints.map((ip) => [ip, endpoint(ip)])),
  );
}

/** The rules of one chain, without its name. */
function chain(text: string, name: string): string[] {
  const head = `-A k8s-${name} `;
  return text
    .split('\n')
    .filter((line) => line.startsWith(head))
    .map((line) => line.slice(head.length));
}

t.test('three chains in two tables, each table a transaction', async (t) => {
  const view = viewOf(external('d/web', ['192.0.2.1'], ['10.1.0.5', '10.1.0.6']));
  const { text, any, problems } = extipRules(view, 4, OPTIONS);
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
  t.ok(any);
  t.same(problems, []);
});

t.test('clients are spread evenly over the endpoints', async (t) => {
  const ips = Array.from({ length: 7 }, (_, index) => `10.1.0.${index + 1}`);
  const { text } = extipRules(viewOf(external('d/web', ['192.0.2.1'], ips)), 4, OPTIONS);
  let left = 1;
  for (const rule of chain(text, 'DNAT')) {
    const chance = Number(/--probability (\S+)/.exec(rule)?.[1] ?? 1);
    t.ok(Math.abs(left * chance - 1 / 7) < 1e-6, rule);
    left *= 1 - chance;
  }
});

t.test('IPv6 has rules of its own, with brackets where a port follows', async (t) => {
  const view = viewOf(
    entry(
      'd/web',
      { ips: { externalIPs: { v4: ['192.0.2.1'], v6: ['2001:db8::1'] } }, ports: [...HTTP] },
      { a: endpoint('10.1.0.5', { ips: { v4: ['10.1.0.5'], v6: ['fd00::5'] } }) },
    ),
  );
  const { text } = extipRules(view, 6, OPTIONS);
  t.same(chain(text, 'DNAT'), [
    '-d 2001:db8::1 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::5]:8080',
  ]);
  t.notMatch(text, /192\.0\.2|10\.1\.0/);
});

t.test('services without an external IP have none, and other types can be left out', async (t) => {
  const view = viewOf(
    entry(
      'd/inner',
      { ips: { clusterIPs: { v4: ['10.96.0.1'] } }, ports: [...HTTP] },
      { a: endpoint('10.1.0.1') },
    ),
    external('d/plain', ['192.0.2.1'], ['10.1.0.2']),
    external('d/balanced', ['192.0.2.2'], ['10.1.0.3'], { type: 'LoadBalancer' }),
  );
  t.same(chain(extipRules(view, 4, OPTIONS).text, 'SNAT').length, 2);
  const { text } = extipRules(view, 4, { chainPrefix: 'k8s-', loadBalancersOnly: true });
  t.same(chain(text, 'SNAT'), ['-s 10.1.0.3 -j SNAT --to-source 192.0.2.2']);
  const none = extipRules(viewOf(), 4, { chainPrefix: 'x_', loadBalancersOnly: false });
  t.notOk(none.any);
  t.match(none.text, /^\*filter\n:x_forward - \[0:0\]\nCOMMIT\n\*nat\n:x_DNAT/, 'emptied');
});

t.test('the source of a shared endpoint is the lowest of the first external IPs', async (t) => {
  const view = viewOf(
    external('d/a', ['192.0.2.10', '192.0.2.1'], ['10.1.0.5']),
    external('d/b', ['192.0.2.9'], ['10.1.0.5']),
  );
  const { text } = extipRules(view, 4, OPTIONS);
  t.same(chain(text, 'SNAT'), ['-s 10.1.0.5 -j SNAT --to-source 192.0.2.9'], '9 is below 10');
  t.equal(chain(text, 'forward').length, 1, 'and is let through once');
});

t.test('named target ports, protocols, endpoints not for external clients', async (t) => {
  const ports = [
    { name: 'dns', protocol: 2, port: 53, targetPortName: 'dns-udp' },
    { name: 'sctp', protocol: 3, port: 7, targetPort: 7 },
  ] as const;
  const overrides = [{ name: 'dns', port: 5353 }];
  const view = viewOf(
    entry(
      'd/dns',
      { ips: { externalIPs: { v4: ['192.0.2.1'] } }, ports: [...ports] },
      {
        a: endpoint('10.1.0.5', { portOverrides: [...overrides, { name: 'sctp', port: 7 }] }),
        b: endpoint('10.1.0.6', { scopes: { internal: true, external: false } }),
      },
    ),
  );
  t.same(chain(extipRules(view, 4, OPTIONS).text, 'DNAT'), [
    '-d 192.0.2.1 -p udp -m udp --dport 53 -j DNAT --to-destination 10.1.0.5:5353',
    '-d 192.0.2.1 -p sctp -m sctp --dport 7 -j DNAT --to-destination 10.1.0.5:7',
  ]);
});

t.test('ports that cannot be redirected are reported once each; the rest works', async (t) => {
  const view = viewOf(
    external('d/a', ['192.0.2.1'], ['10.1.0.5']),
    external('d/b', ['192.0.2.1', '192.0.2.2'], ['10.1.0.6']),
    external('d/c', ['192.0.2.3'], ['10.1.0.7'], {
      ports: [{ name: 'bad', protocol: 9 as 1, port: 80 }, { protocol: 1, port: 70_000 }, ...HTTP],
    }),
  );
  const { text, problems } = extipRules(view, 4, OPTIONS);
  t.match(problems, [
    {
      code: 'KPNG_PORTAL_CONFLICT',
      servicePort: 'd/b:http',
      message: /192\.0\.2\.1: d\/a has it$/,
    },
    { code: 'KPNG_SERVICE_INVALID', servicePort: 'd/c:bad' },
    { code: 'KPNG_SERVICE_INVALID', servicePort: 'd/c' },
  ]);
  t.equal(chain(text, 'DNAT').length, 3);
});

t.test('nothing but addresses gets into a script', async (t) => {
  const evil = '192.0.2.1\nCOMMIT\n*nat';
  const view = viewOf(
    external('d/evil', [evil, '-j', '192.0.2.1/0'], ['10.1.0.5', 'x\n-F']),
    external('d/good', ['192.0.2.2'], ['10.1.0.6', '10.1.0.7 -j DROP']),
  );
  const { text } = extipRules(view, 4, OPTIONS);
  t.same(chain(text, 'DNAT').length, 1);
  t.equal(text.split('\n').length, 11);
});

const TOOLS: Tools = { name: 'iptables', flavor: 'nft', version: '1.8.9' };
const MISSING: Reaction = { fails: 'missing' };
const [RESTORE4, RESTORE6] = [
  'iptables-restore --noflush -w 5',
  'ip6tables-restore --noflush -w 5',
];

function web(ip: string, port = 80): ServiceEntry {
  const ports = [{ name: 'http', protocol: 1, port, targetPort: 8080 }] as const;
  const ips = { externalIPs: ip.includes(':') ? { v6: [ip] } : { v4: [ip] } };
  const both = { v4: ['10.1.0.5'], v6: ['fd00::5'] };
  return entry('d/web', { ips, ports: [...ports] }, { a: endpoint('', { ips: both }) });
}

function rig(react: (family: 4 | 6) => Reaction = () => ({})) {
  const fake = new FakeExec(({ file }) => react(file.startsWith('ip6') ? 6 : 4));
  const sink = new ExtipSink({
    exec: fake.exec,
    tools: async () => TOOLS,
    ...OPTIONS,
  });
  return { fake, sink };
}

t.test('one run for each family, and only where something differs', async (t) => {
  const { fake, sink } = rig();
  await sink.sync(change(web('192.0.2.1')));
  t.same(fake.lines, [RESTORE4, RESTORE6], 'also where there are none, so that old ones go');
  t.match(fake.commands[0]?.stdin, /-A k8s-DNAT -d 192\.0\.2\.1 /);
  await sink.sync(change(web('192.0.2.1')));
  t.equal(fake.lines.length, 2);
  await sink.sync(change(web('192.0.2.2')));
  t.same(fake.lines.slice(2), [RESTORE4]);
  t.notMatch(fake.commands[2]?.stdin, /192\.0\.2\.1\b/);
  await sink.sync(change());
  t.same(fake.lines.slice(3), [RESTORE4]);
  t.notMatch(fake.commands[3]?.stdin, /^-A/m);
});

t.test('a failure fails the sync with its code, and the rules are written again', async (t) => {
  let broken = true;
  const { fake, sink } = rig((family) =>
    family === 4 && broken ? exits('iptables-restore: Permission denied (you must be root)') : {},
  );
  await t.rejects(sink.sync(change(web('192.0.2.1'))), {
    code: 'KPNG_PORTAL_PERMISSION',
    message: /^writing the rules of IPv4 external IPs: /,
  });
  t.same(fake.lines, [RESTORE4, RESTORE6], 'the other family has been written all the same');
  broken = false;
  await sink.sync(change(web('192.0.2.1')));
  t.same(fake.lines.slice(2), [RESTORE4]);
});

t.test('a host without IPv6 is fine, until a service needs it', async (t) => {
  const { sink } = rig((family) => (family === 6 ? MISSING : {}));
  await sink.sync(change(web('192.0.2.1')));
  await t.rejects(sink.sync(change(web('2001:db8::1'))), { code: 'KPNG_PORTAL_TOOL_MISSING' });
  const without4 = rig((family) => (family === 4 ? MISSING : {}));
  await t.rejects(without4.sink.sync(change()), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});

t.test('a problem is reported once, as long as it lasts', async (t) => {
  const told = collect(t, extipProblem);
  const { sink } = rig();
  const bad = change(web('192.0.2.1', 70_000));
  await sink.sync(bad);
  await sink.sync(bad);
  t.equal(told.length, 1);
  t.match(told[0]?.error.message, /^d\/web:http: .* port 70000, /);
  await sink.sync(change(web('192.0.2.1')));
  await sink.sync(bad);
  t.equal(told.length, 2);
});
