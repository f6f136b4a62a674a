import t from 'tap';
import type { Tools } from '../../../src/portal/iptables/tools.ts';
import { extipProblem } from '../../../src/sinks/events.ts';
import { ExtipSink } from '../../../src/sinks/extip/sink.ts';
import type { LocalChange, ServiceEntry } from '../../../src/store/local-view.ts';
import { exits, FakeExec, type Reaction } from '../../support/fake-exec.ts';
import { endpoint, entry, TestView } from '../../support/messages.ts';
import { collect } from '../../support/sockets.ts';

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

function change(...entries: ServiceEntry[]): LocalChange {
  const view = new TestView();
  for (const each of entries) view.set(each);
  return { view, changed: new Set(entries.map(({ key }) => key)) };
}

function rig(react: (family: 4 | 6) => Reaction = () => ({})) {
  const fake = new FakeExec(({ file }) => react(file.startsWith('ip6') ? 6 : 4));
  const sink = new ExtipSink({
    exec: fake.exec,
    tools: async () => TOOLS,
    chainPrefix: 'k8s-',
    loadBalancersOnly: false,
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
