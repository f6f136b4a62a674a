import { until } from '../support/until.ts';
import type { Machine } from './support/machine.ts';
import type { Proxy } from './support/proxy.ts';
import { ALL_KINDS, testEachKind } from './support/rule-kinds.ts';
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

testEachKind(
  'after kill -9 the rules stay, and a new process takes them over',
  async (t, here) => {
    const first = here.start();
    await first.sync({ 'd/all': everywhere(), 'd/old': simple('10.96.0.66', 'TCP 80') });
    await here.client.open('udp', `${SERVICE.external.v4}:53/UDP`);
    t.match(await here.client.say('udp'), /^pod/);
    await first.kill();
    t.match(await here.rules(), here.kind.portalOf('10.96.0.10', 'tcp', 80));
    t.equal(await here.client.ask(WEB), 'ECONNREFUSED', 'nobody answers, and the client is told');
    const second = here.start();
    await second.sync({ 'd/all': everywhere() });
    t.match(await here.client.ask(WEB), /^pod/);
    t.match(await here.client.say('udp'), /^pod/, 'a UDP client that went on with the same port');
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
    t.match(await here.client.say('kept'), /^pod/, 'a connection through the first one goes on');
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
