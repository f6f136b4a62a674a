import { until, eventually } from '../support/until.ts';
import { NODE } from './support/network.ts';
import { type Proxy, ceaseless, everywhere, SERVICE, simple } from './support/proxy.ts';
import { ALL_KINDS, testEachKind } from './support/rule-kinds.ts';

const WEB = `${SERVICE.cluster.v4}:80`;

function taken(proxy: Proxy): boolean {
  return proxy.events.some(({ code }) => code === 'KPNG_PORTAL_TAKEN');
}

testEachKind(
  'after kill -9 the rules stay, and a new process takes them over',
  async (t, here) => {
    const first = here.start();
    await first.sync({ 'd/all': everywhere(), 'd/old': simple('10.96.0.66', 'TCP 80') });
    await here.client.open('udp', `${SERVICE.external.v4}:53/UDP`);
    t.match(await here.client.say('udp'), /^pod/);
    await first.kill();
    t.match(await here.rules(), here.kind.portalOf('10.96.0.10', 'tcp', 80));
    t.equal(await here.client.ask(WEB), 'ECONNREFUSED', 'no one answers, and the client learns it');
    const second = here.start();
    await second.sync({ 'd/all': everywhere() });
    t.match(await here.client.ask(WEB), /^pod/);
    t.match(await here.client.say('udp'), /^pod/, 'a UDP client that continued with the same port');
    t.notMatch(await here.rules(), /10\.96\.0\.66/, 'what is not wanted any more is gone');
  },
  ALL_KINDS,
);

testEachKind(
  'a new process takes over from one that runs without a client being refused',
  async (t, here) => {
    const first = here.start();
    await first.sync({ 'd/all': everywhere() });
    await here.client.open('kept', WEB);
    t.match(await here.client.say('kept'), /^pod/);
    const stop = ceaseless(here.client, WEB);
    const second = here.start();
    await second.sync({ 'd/all': everywhere() });
    await until(() => taken(first));
    const told = first.events.find(({ code }) => code === 'KPNG_PORTAL_TAKEN');
    t.match(told?.message, `another process (${second.pid}) writes`);
    t.match(await here.client.say('kept'), /^pod/, 'a connection through the first one continues');
    const counts = await stop();
    t.same(Object.keys(counts).sort(), ['pod-a', 'pod-b'], JSON.stringify(counts));
    t.notOk(taken(second), 'only one of them has the table');

    await second.kill();
    const writes = first.writes.length;
    await until(() => first.writes.length > writes);
    t.match(await here.client.ask(WEB), /^pod/, 'the first one has taken the table back');
  },
);

testEachKind(
  'a port that moves is never refused, and connections outlive the deletion of their service',
  async (t, here) => {
    const proxy = here.start();
    const named = (name: string) => simple('10.96.0.1', 'TCP 80', undefined, { name });
    await proxy.sync({ 'd/web': named('http') });
    const stop = ceaseless(here.client, '10.96.0.1:80');
    for (const name of ['web', 'http', 'main', 'http']) await proxy.sync({ 'd/web': named(name) });
    await proxy.sync({ 'd/other': named('http') }, ['d/web']);
    await proxy.sync({ 'd/web': named('http') }, ['d/other']);
    const counts = await stop();
    t.same(Object.keys(counts), ['pod-a'], JSON.stringify(counts));

    await here.client.open('kept', '10.96.0.1:80');
    t.match(await here.client.say('kept'), /^pod-a/);
    await proxy.sync({}, ['d/web']);
    t.match(await here.client.say('kept'), /^pod-a/);
    t.equal(await here.client.askInVain('10.96.0.1:80'), 'silence', 'new ones find nothing');
  },
);

/** After so many repairs in a row a process waits, as it might fight someone. */
const QUICK_REPAIRS = 5;

// The next comparison of all rules is further away than `until` waits.
testEachKind(
  'rules that another program removes are back before all are compared',
  async (t, here) => {
    let proxy = here.start();
    let repairs = QUICK_REPAIRS;
    for (const [file = '', ...args] of here.kind.damage) {
      if (repairs >= QUICK_REPAIRS) {
        await proxy.kill();
        proxy = here.start();
        await proxy.sync({ 'd/all': everywhere() });
        repairs = 0;
      }
      repairs += 1;
      const repaired = (): number => proxy.writes.filter((reason) => reason === 'repair').length;
      const before = repaired();
      await here.exec({ file, args });
      await until(() => repaired() > before);
      // The repair may have been one that was under way before the damage; a connection that came too early stays lost.
      t.ok(await eventually(async () => (await here.client.ask(WEB)).startsWith('pod')));
      const place = `[${SERVICE.cluster.v6}]:80`;
      t.ok(await eventually(async () => (await here.node.ask(place)).startsWith('pod')));
    }
  },
);

testEachKind(
  'a change repairs rules that were just removed, and they follow the addresses',
  async (t, here) => {
    const proxy = here.start();
    await proxy.sync({ 'd/all': everywhere() });
    for (const [file = '', ...args] of here.kind.removeAll) await here.exec({ file, args });
    await proxy.sync({ 'd/more': simple('10.96.0.77', 'TCP 80') });
    t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
    t.match(await here.client.ask(WEB), /^pod/);

    const keepOthers = 'net.ipv4.conf.eth0.promote_secondaries=1';
    await here.network.inside('node', 'sysctl', ['-q', '-w', keepOthers]);
    const ip = (machine: 'node' | 'client', command: string) =>
      here.network.inside(machine, 'ip', command.split(' '));
    await ip('node', 'address add 192.0.2.50/24 dev eth0');
    await ip('node', `address delete ${NODE.v4}/24 dev eth0`);
    await ip('client', 'route replace default via 192.0.2.50');
    // Packets that keep their destination are sent to no address of the node.
    const hasAddress = async () => (await here.rules()).includes('192.0.2.50');
    t.ok(here.kind.name === 'transparent' || (await eventually(hasAddress)));
    t.match(await here.client.ask(WEB), /^pod/);
    t.match(await here.client.ask(`${SERVICE.cluster.v4}:53/UDP`), /^pod/);
    t.match(await here.client.ask(`192.0.2.50:${SERVICE.nodePort.TCP}`), /^pod/);
  },
);

testEachKind(
  'a single rule or element that someone removes comes back',
  async (t, here) => {
    const proxy = here.start({ auditMs: 200 });
    await proxy.sync({ 'd/all': everywhere(), 'd/web': simple('10.96.0.77', 'TCP 80') });
    const lost = () =>
      proxy.events
        .filter(({ channel }) => channel.endsWith('portal:lost'))
        .map((each) => each.message);
    for (const [file = '', ...args] of await here.kind.damageOne(here.exec)) {
      const before = lost().length;
      await here.exec({ file, args });
      await until(() => proxy.writes.filter((reason) => reason === 'repair').length > before);
      t.equal(lost().length, before + 1, `${file} ${args.join(' ')}: ${lost().at(-1)}`);
      t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
      t.match(await here.client.ask(WEB), /^pod/);
    }
    const { length } = lost();
    await new Promise((resolve) => setTimeout(resolve, 1000));
    t.equal(lost().length, length, 'what is whole is left alone');
  },
  ALL_KINDS,
);
