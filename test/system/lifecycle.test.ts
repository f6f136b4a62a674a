import t from 'tap';
import { systemExec, type Exec } from '../../src/portal/exec.ts';
import { removeNftables } from '../../src/portal/nftables/tool.ts';
import { until } from '../support/until.ts';
import { lab } from './support/lab.ts';
import type { Machine } from './support/machine.ts';
import { NODE } from './support/network.ts';
import type { Proxy } from './support/proxy.ts';
import { everywhere, SERVICE, simple } from './support/services.ts';

const WEB = `${SERVICE.cluster.v4}:80`;

/** Asks over and over until told to stop; resolves with how often each answer came. */
function ceaseless(machine: Machine, place: string): () => Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  const stop = new AbortController();
  const worker = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      const answer = (await machine.ask(place)).split(' ')[0] ?? '';
      counts[answer] = (counts[answer] ?? 0) + 1;
    }
  };
  const workers = Promise.all([worker(), worker(), worker(), worker()]);
  return async () => {
    stop.abort();
    await workers;
    return counts;
  };
}

function taken(proxy: Proxy): boolean {
  return proxy.events.some(({ code }) => code === 'KPNG_PORTAL_TAKEN');
}

t.test('rules that somebody else removes are back within a second', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  await proxy.sync({ 'd/all': everywhere() });
  const remove = [
    ['flush', 'ruleset'],
    ['delete', 'table', 'inet', 'kpng-userspace'],
    ['flush', 'table', 'inet', 'kpng-userspace'],
    ['flush', 'chain', 'inet', 'kpng-userspace', 'nat-output'],
    ['flush', 'map', 'inet', 'kpng-userspace', 'services4'],
  ];
  for (const args of remove) {
    const writes = proxy.writes.length;
    const begin = performance.now();
    await here.network.inside('node', 'nft', args);
    await until(() => proxy.writes.length > writes);
    const ms = Math.round(performance.now() - begin);
    t.ok(ms < 1000, `nft ${args.join(' ')}: repaired after ${ms} ms`);
    t.equal(proxy.writes.at(-1), 'repair');
    t.match(await here.client.ask(WEB), /^pod/);
    t.match(await here.node.ask(`[${SERVICE.cluster.v6}]:80`), /^pod/);
  }
});

t.test('a change right after the rules were removed repairs them', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  await proxy.sync({ 'd/all': everywhere() });
  await here.network.inside('node', 'nft', ['flush', 'ruleset']);
  await proxy.sync({ 'd/more': simple('10.96.0.77', 'TCP 80') });
  t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
  t.match(await here.client.ask(WEB), /^pod/);
});

t.test('after kill -9 the rules stay, and a new process takes them over', async (t) => {
  const here = await lab(t);
  const first = here.start();
  await first.sync({ 'd/all': everywhere(), 'd/old': simple('10.96.0.66', 'TCP 80') });
  await here.client.open('udp', `${SERVICE.external.v4}:53/UDP`);
  t.match(await here.client.say('udp'), /^pod/);
  await first.kill();
  t.match(await here.ruleset(), /10\.96\.0\.10 \. tcp \. 80/);
  t.equal(await here.client.ask(WEB), 'ECONNREFUSED', 'nobody answers, and the client is told');
  const second = here.start();
  await second.sync({ 'd/all': everywhere() });
  t.match(await here.client.ask(WEB), /^pod/);
  t.match(await here.client.say('udp'), /^pod/, 'a UDP client that went on with the same port');
  t.notMatch(await here.ruleset(), /10\.96\.0\.66/, 'what is not wanted any more is gone');
});

t.test('a new process takes over from one that runs without a client being refused', async (t) => {
  const here = await lab(t);
  const first = here.start();
  await first.sync({ 'd/all': everywhere() });
  await here.client.open('kept', WEB);
  t.match(await here.client.say('kept'), /^pod/);
  const stop = ceaseless(here.client, WEB);
  const second = here.start();
  await second.sync({ 'd/all': everywhere() });
  await until(() => taken(first));
  t.match(await here.client.say('kept'), /^pod/, 'a connection through the first one goes on');
  const counts = await stop();
  t.same(Object.keys(counts).sort(), ['pod-a', 'pod-b'], JSON.stringify(counts));
  t.notOk(taken(second), 'only one of them has the table');

  await second.kill();
  const writes = first.writes.length;
  await until(() => first.writes.length > writes);
  t.match(await here.client.ask(WEB), /^pod/, 'the first one has taken the table back');
});

t.test(
  'a port that moves to another service, or gets another name, is never refused',
  async (t) => {
    const here = await lab(t);
    const proxy = here.start();
    const named = (name: string) => simple('10.96.0.1', 'TCP 80', undefined, { name });
    await proxy.sync({ 'd/web': named('http') });
    const stop = ceaseless(here.client, '10.96.0.1:80');
    for (const name of ['web', 'http', 'main', 'http']) await proxy.sync({ 'd/web': named(name) });
    await proxy.sync({ 'd/other': named('http') }, ['d/web']);
    await proxy.sync({ 'd/web': named('http') }, ['d/other']);
    const counts = await stop();
    t.same(Object.keys(counts), ['pod-a'], JSON.stringify(counts));
  },
);

t.test('connections outlive the deletion of their service', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  await proxy.sync({ 'd/web': simple('10.96.0.1', 'TCP 80') });
  await here.client.open('kept', '10.96.0.1:80');
  t.match(await here.client.say('kept'), /^pod-a/);
  await proxy.sync({}, ['d/web']);
  t.match(await here.client.say('kept'), /^pod-a/);
  t.equal(await here.client.askInVain('10.96.0.1:80'), 'silence', 'new ones find nothing');
});

t.test('the rules follow the addresses of the node', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  await proxy.sync({ 'd/all': everywhere() });
  const keepOthers = 'net.ipv4.conf.eth0.promote_secondaries=1';
  await here.network.inside('node', 'sysctl', ['-q', '-w', keepOthers]);
  const ip = (machine: 'node' | 'client', command: string) =>
    here.network.inside(machine, 'ip', command.split(' '));
  await ip('node', 'address add 192.0.2.50/24 dev eth0');
  await ip('node', `address delete ${NODE.v4}/24 dev eth0`);
  await ip('client', 'route replace default via 192.0.2.50');
  await until(() => proxy.writes.includes('repair'));
  t.match(await here.client.ask(WEB), /^pod/);
  t.match(await here.client.ask(`${SERVICE.cluster.v4}:53/UDP`), /^pod/);
  t.match(await here.client.ask(`192.0.2.50:${SERVICE.nodePort.TCP}`), /^pod/);
});

t.test('cleanup leaves the rules of others as they were, and may be run twice', async (t) => {
  const here = await lab(t);
  const inNode: Exec = ({ file, args, ...rest }) =>
    systemExec({
      ...rest,
      file: 'ip',
      args: ['netns', 'exec', here.network.namespace('node'), file, ...args],
    });
  await here.network.inside('node', 'nft', ['-f', '-'], othersRules);
  const before = await here.ruleset();
  const proxy = here.start();
  await proxy.sync({ 'd/all': everywhere() });
  t.match(await here.client.ask(WEB), /^pod/);
  t.not(await here.ruleset(), before);
  await proxy.kill();
  await removeNftables(inNode, 'kpng-userspace');
  t.equal(await here.ruleset(), before);
  await removeNftables(inNode, 'kpng-userspace');
  t.equal(await here.ruleset(), before);
  t.equal(await here.client.askInVain(WEB), 'silence');
});

const othersRules = `table ip nat {
  chain POSTROUTING { type nat hook postrouting priority srcnat; oifname "eth1" masquerade; }
}
table inet filter {
  chain input { type filter hook input priority filter; policy accept; tcp dport 22 accept; }
}
`;
