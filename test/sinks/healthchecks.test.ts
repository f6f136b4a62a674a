import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import t, { type Test } from 'tap';
import { healthCheckFailed, healthCheckServed } from '../../src/sinks/events.ts';
import { HealthCheckSink, type HealthCheckSinkOptions } from '../../src/sinks/healthchecks.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { freePort, listening } from '../support/sockets.ts';
import { until } from '../support/until.ts';
import { FakeClock } from '../support/fake-clock.ts';

const LINUX = process.platform === 'linux' ? false : 'only on linux';

/** A service with a health-check node port, and so many endpoints here and elsewhere. */
function service(key: string, port: number, here: number, elsewhere = 1): ServiceEntry {
  const endpoints = Array.from({ length: here + elsewhere }, (_, n) => {
    const address = `10.1.0.${n + 1}`;
    return [address, endpoint(address, { local: n < here })] as const;
  });
  return entry(
    key,
    { type: 'LoadBalancer', externalTrafficToLocal: true, healthCheckNodePort: port },
    Object.fromEntries(endpoints),
  );
}

/** A sink on loopback, with what it reports. */
function rig(t: Test, options: Partial<HealthCheckSinkOptions> = {}) {
  const clock = new FakeClock();
  const sink = new HealthCheckSink({ wanted: ['127.0.0.0/8'], clock, ...options });
  const told: string[] = [];
  listening(t, healthCheckServed, ({ service, address }) => told.push(`${service} at ${address}`));
  listening(t, healthCheckFailed, ({ error }) => told.push(`${error.code} ${error.message}`));
  t.teardown(() => sink.close());
  return { sink, clock, told, view: new TestView() };
}

async function ask(port: number, path = '/') {
  const response = await fetch(`http://127.0.0.1:${port}${path}`);
  return { status: response.status, text: await response.text(), headers: response.headers };
}

t.test('answers as kube-proxy does, on any path', async (t) => {
  const { sink, view } = rig(t);
  const port = await freePort();
  await sink.sync(view.set(service('demo/web', port, 2)));
  const { status, text, headers } = await ask(port, '/healthz?x=1');
  t.equal(status, 200);
  t.equal(
    text,
    '{\n\t"service": {\n\t\t"namespace": "demo",\n\t\t"name": "web"\n\t},\n' +
      '\t"localEndpoints": 2,\n\t"serviceProxyHealthy": true\n}',
  );
  t.equal(headers.get('content-type'), 'application/json');
  t.equal(headers.get('x-content-type-options'), 'nosniff');
  t.equal(headers.get('x-load-balancing-endpoint-weight'), '2');
});

t.test('what terminates does not count, and nothing while the proxy does not work', async (t) => {
  let healthy = false;
  const { sink, view } = rig(t, { healthy: () => healthy });
  const port = await freePort();
  const going = endpoint('10.1.0.1', { local: true, terminating: true });
  const ready = endpoint('10.1.0.2', { local: true });
  const away = endpoint('10.1.0.3');
  const more = { externalTrafficToLocal: true, healthCheckNodePort: port };
  for (const [endpoints, works, status, localEndpoints] of [
    [{ going, away }, true, 503, 0],
    [{ going, ready, away }, true, 200, 1],
    [{ going, ready }, false, 503, 1],
  ] as const) {
    healthy = works;
    await sink.sync(view.set(entry('demo/web', more, endpoints)));
    const answer = await ask(port);
    t.equal(answer.status, status);
    t.match(JSON.parse(answer.text), { localEndpoints, serviceProxyHealthy: works });
  }
  // Only services with the policy Local have one.
  await sink.sync(view.set(entry('demo/web', { ...more, externalTrafficToLocal: false })));
  await t.rejects(ask(port));
  t.same(sink.problems, []);
});

t.test('ports open and close with their services', async (t) => {
  const { sink, view, told } = rig(t);
  const [one, two] = [await freePort(), await freePort()];
  await sink.sync(view.set(service('d/a', one, 1)));
  await sink.sync(view.set(service('d/a', two, 1)));
  await t.rejects(ask(one), 'the port that it had');
  t.equal((await ask(two)).status, 200);
  await sink.sync(view.set(service('d/a', two, 0), service('d/b', one, 1)));
  t.equal((await ask(one)).status, 200);
  await sink.sync(view.remove('d/a'));
  await t.rejects(ask(two));
  await sink.close();
  await t.rejects(ask(one), 'when it ends, load balancers look elsewhere at once');
  t.same(told, [`d/a at 127.0.0.1:${one}`, `d/a at 127.0.0.1:${two}`, `d/b at 127.0.0.1:${one}`]);
});

t.test('a client that has connected is answered when another process takes over', async (t) => {
  const { sink, view } = rig(t);
  const port = await freePort();
  await sink.sync(view.set(service('d/a', port, 1)));
  const late = connect(port, '127.0.0.1');
  await once(late, 'connect');
  // It has been accepted when a later one has been answered.
  await ask(port);
  const left = sink.leave();
  await t.rejects(ask(port), 'no new one');
  late.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  t.match(String((await once(late, 'data'))[0]), /^HTTP\/1.1 200 /);
  await left;
});

t.test('if two services need a port, the second one waits for it', async (t) => {
  const { sink, view, told } = rig(t);
  const port = await freePort();
  const name = async (of: number) =>
    (JSON.parse((await ask(of)).text) as { service: { name: string } }).service.name;
  await sink.sync(view.set(service('d/b', port, 1)));
  await sink.sync(view.set(service('d/a', port, 0)));
  t.equal(await name(port), 'b');
  const message = /d\/b has it; this service/;
  t.match(sink.problems, [{ code: 'KPNG_PORTAL_CONFLICT', servicePort: 'd/a', message }]);
  await sink.sync(view.again('d/a', 'd/b'));
  t.equal(told.length, 2, 'a conflict is reported once');
  await sink.sync(view.remove('d/b'));
  t.equal(await name(port), 'a');
  t.same(sink.problems, []);
  t.equal(told.length, 2, 'the listener stayed open');

  const other = await freePort();
  await sink.sync(view.set(service('d/b', other, 1)));
  await sink.sync(view.set(service('d/a', other, 1), service('d/b', port, 1)));
  t.same([await name(port), await name(other)], ['b', 'a'], 'they swap their ports');
});

t.test('reports who holds the port, and takes over when it ends', { skip: LINUX }, async (t) => {
  const { sink, view, told, clock } = rig(t);
  const foreign = createServer().listen(0, '127.0.0.1');
  await once(foreign, 'listening');
  const { port } = foreign.address() as { port: number };
  const other = await freePort();
  await sink.sync(view.set(service('d/a', port, 1), service('d/b', other, 1)));
  t.equal((await ask(other)).status, 200, 'others are served');
  const [problem] = sink.problems;
  t.match(problem, { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePort: 'd/a' });
  t.match(problem?.message, `this process (${process.pid}) listens there; retrying`);
  foreign.close();
  await once(foreign, 'close');
  clock.advance(1000);
  await until(() => told.includes(`d/a at 127.0.0.1:${port}`));
  t.equal((await ask(port)).status, 200);
  t.same(sink.problems, []);
});

t.test('invalid ports, and ports without an address, are reported', async (t) => {
  const host: HostAddress[] = [];
  const { sink, view, told } = rig(t, { host: () => host });
  const port = await freePort();
  await sink.sync(
    view.set(service('d/a', port, 1), service('d/b', 70_000, 1), service('d/c', -1, 1)),
  );
  const invalid = 'KPNG_SERVICE_INVALID';
  const codes = ['KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', invalid, invalid];
  t.same(
    [sink.problems.map(({ code }) => code), told.map((line) => line.split(' ')[0])],
    [codes, codes],
  );
  host.push({ address: '127.0.0.1', loopback: true });
  await sink.sync(view.set(service('d/b', 0, 0), service('d/c', 0, 0)));
  t.same(sink.problems, []);
  t.equal((await ask(port)).status, 200);
});

t.test('on every address there is one listener for both families', async (t) => {
  const { sink, view, told } = rig(t, { wanted: [] });
  const port = await freePort();
  await sink.sync(view.set(service('d/a', port, 1)));
  t.equal((await ask(port)).status, 200);
  t.equal((await fetch(`http://[::1]:${port}/`)).status, 200);
  t.same(told, [`d/a at [::]:${port}`]);
});
