/** What is drained, on an engine that tells where connections land; and once with real sockets. */
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { DrainingEngine, MAX_DRAINS } from '../../src/admin/drains.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import type { EndpointSpec, ServicePortSpec } from '../../src/proxysocket/spec.ts';
import { FakeEngine } from '../support/fake-engine.ts';
import {
  connectionEnd,
  namedServer,
  readAll,
  request,
  tcpClient,
  tcpServer,
} from '../support/tcp-peers.ts';
import { tcpSpec } from '../support/tcp-rig.ts';

function endpoint(text: string): EndpointSpec {
  const [address = '', port] = text.split(':');
  return { address, port: Number(port), internal: true, external: true };
}

function spec(name: string, port: number, endpoints: readonly string[]): ServicePortSpec {
  return tcpSpec(endpoints.map(endpoint), { name, listen: [{ port }] });
}

/** An engine with a service of two ports and another one. */
async function rig() {
  const fake = new FakeEngine();
  const engine = new DrainingEngine(fake);
  await engine.apply([
    { kind: 'set', spec: spec('ns/web:http', 80, ['10.1.0.1:8080', '10.1.0.2:8080']) },
    { kind: 'set', spec: spec('ns/web:https', 443, ['10.1.0.1:8443']) },
    { kind: 'set', spec: spec('ns/webs', 81, ['10.1.0.1:8080']) },
  ]);
  const lands = (port: number) => fake.lands('127.0.0.1', port)?.endpoints;
  return { fake, engine, lands };
}

t.test('a service is drained with all its ports, and no other service', async (t) => {
  const { engine, lands } = await rig();
  t.strictSame(await engine.drain({ kind: 'service', service: 'ns/web' }), [
    'ns/web:http',
    'ns/web:https',
  ]);
  t.strictSame([lands(80), lands(443), lands(81)], [[], [], ['10.1.0.1:8080']]);
  t.equal(engine.isDrained('ns/web:http'), true);
  t.equal(engine.isDrained('ns/webs'), false);
  await engine.undrain({ kind: 'service', service: 'ns/web' });
  t.strictSame(lands(80), ['10.1.0.1:8080', '10.1.0.2:8080']);
  t.strictSame(engine.drains(), []);
});

t.test('one port of a service', async (t) => {
  const { engine, lands } = await rig();
  await engine.drain({ kind: 'service', service: 'ns/web:https' });
  t.strictSame([lands(80)?.length, lands(443)], [2, []]);
});

t.test('an endpoint, of one service or of all', async (t) => {
  const { engine, lands } = await rig();
  const one = { kind: 'endpoint', endpoint: '10.1.0.1:8080' } as const;
  t.strictSame(await engine.drain({ ...one, service: 'ns/web' }), ['ns/web:http']);
  t.strictSame([lands(80), lands(81)], [['10.1.0.2:8080'], ['10.1.0.1:8080']]);
  t.strictSame(await engine.drain(one), ['ns/web:http', 'ns/webs']);
  t.strictSame([lands(80), lands(81)], [['10.1.0.2:8080'], []]);
  await engine.undrain(one);
  t.strictSame(lands(80), ['10.1.0.2:8080'], 'the narrower one holds on');
});

t.test('the process', async (t) => {
  const { engine, lands } = await rig();
  t.equal((await engine.drain({ kind: 'process' })).length, 3);
  t.strictSame([lands(80), lands(443), lands(81)], [[], [], []]);
  t.equal(engine.isAllDrained, true);
  await engine.undrain();
  t.equal(lands(80)?.length, 2);
});

t.test('a drain holds through changes, and for what comes later', async (t) => {
  const { engine, lands, fake } = await rig();
  await engine.drain({ kind: 'service', service: 'ns/web' });
  const endpoints = ['10.1.0.7:1', '10.1.0.8:1'].map(endpoint);
  await engine.apply([{ kind: 'endpoints', name: 'ns/web:http', endpoints }]);
  t.strictSame(lands(80), []);
  await engine.apply([{ kind: 'remove', name: 'ns/web:http' }]);
  await engine.apply([{ kind: 'set', spec: spec('ns/web:http', 80, ['10.1.0.9:1']) }]);
  t.strictSame(lands(80), []);
  await engine.undrain();
  t.strictSame(lands(80), ['10.1.0.9:1'], 'what is wanted by now');
  await engine.drain({ kind: 'process' });
  await engine.apply([{ kind: 'set', spec: spec('ns/new', 90, ['10.1.0.9:1']) }]);
  t.strictSame(lands(90), []);
  t.equal(fake.snapshot().length, 4);
});

t.test('while nothing is drained, a batch passes as it is', async (t) => {
  const { engine, fake } = await rig();
  const batch = [{ kind: 'endpoints', name: 'ns/webs', endpoints: [] }] as const;
  await engine.apply(batch);
  t.equal(fake.batches.at(-1), batch);
});

t.test('what is not there cannot be drained, nor taken back', async (t) => {
  const { engine } = await rig();
  const refused = { code: 'KPNG_ADMIN_REFUSED' };
  await t.rejects(engine.drain({ kind: 'service', service: 'web' }), {
    message: 'there is no service "web"; did you mean "ns/web"?',
  });
  await t.rejects(engine.drain({ kind: 'service', service: 'we' }), {
    message: 'there is no service "we"; services are named namespace/name',
  });
  await t.rejects(engine.drain({ kind: 'service', service: 'ns/we' }), {
    ...refused,
    message: 'there is no service "ns/we"',
  });
  await t.rejects(engine.drain({ kind: 'endpoint', endpoint: '10.9.9.9:1' }), refused);
  await t.rejects(
    engine.drain({ kind: 'endpoint', endpoint: '10.1.0.2:8080', service: 'ns/webs' }),
    refused,
  );
  await t.rejects(engine.undrain({ kind: 'service', service: 'ns/web' }), refused);
  t.strictSame(engine.drains(), []);
});

t.test('there is a limit to what is drained one by one', async (t) => {
  const engine = new DrainingEngine(new FakeEngine());
  const endpoints = Array.from({ length: MAX_DRAINS + 1 }, (_, index) => `10.1.0.1:${index + 1}`);
  await engine.apply([{ kind: 'set', spec: spec('ns/web', 80, endpoints) }]);
  for (const each of endpoints.slice(1)) await engine.drain({ kind: 'endpoint', endpoint: each });
  const more = { kind: 'endpoint', endpoint: endpoints[0] ?? '' } as const;
  await t.rejects(engine.drain(more), {
    message: /1000 services and endpoints are drained already/,
  });
  await engine.drain({ kind: 'endpoint', endpoint: endpoints[1] ?? '' });
});

t.test('open connections go on, new ones are refused, and come back', async (t) => {
  const engine = new DrainingEngine(createNodeEngine());
  t.teardown(() => engine.destroy());
  const server = await tcpServer(t, (socket) => socket.write('hello'));
  await engine.apply([{ kind: 'set', spec: tcpSpec([server.endpoint], { name: 'ns/web' }) }]);
  const status = engine.snapshot()[0]?.listeners[0];
  const port = status?.state === 'listening' ? status.boundPort : 0;
  const client = await tcpClient(t, port);
  await once(client, 'data');
  await engine.drain({ kind: 'service', service: 'ns/web' });

  const refused = connect(port, '127.0.0.1').resume();
  refused.on('error', () => undefined);
  await new Promise((resolve) => refused.once('close', resolve));
  t.equal(refused.bytesRead, 0, 'nobody answers');
  t.match(engine.snapshot()[0]?.counters, { rejectedDrained: 1, rejectedNoEndpoint: 0 });
  server.sockets[0]?.end(' again');
  t.equal(String(await readAll(client)), ' again', 'the open one goes on');

  await engine.undrain();
  const again = await tcpClient(t, port);
  const [greeting] = (await once(again, 'data')) as [Buffer];
  t.equal(String(greeting), 'hello');
});

t.test('clients of a service without endpoints are not told that it is drained', async (t) => {
  const engine = new DrainingEngine(createNodeEngine());
  t.teardown(() => engine.destroy());
  await engine.apply([{ kind: 'set', spec: tcpSpec([], { name: 'ns/web' }) }]);
  await engine.drain({ kind: 'process' });
  const status = engine.snapshot()[0]?.listeners[0];
  const refused = connect(status?.state === 'listening' ? status.boundPort : 0, '127.0.0.1');
  refused.on('error', () => undefined).resume();
  await new Promise((resolve) => refused.once('close', resolve));
  t.match(engine.snapshot()[0]?.counters, { rejectedDrained: 0, rejectedNoEndpoint: 1 });
});

t.test('a drain is no reason where a client could not have had the endpoint anyway', async (t) => {
  const engine = new DrainingEngine(createNodeEngine());
  t.teardown(() => engine.destroy());
  const { endpoint: local } = await namedServer(t, 'a');
  const unused = { ...local, internal: false, external: false };
  const refusedAt = async (index: number) => {
    const status = engine.snapshot()[0]?.listeners[index];
    const port = status?.state === 'listening' ? status.boundPort : 0;
    t.equal(await connectionEnd(t, port), 'ECONNRESET');
  };
  const listen = [{}, { traffic: 'external' }] as const;
  await engine.apply([{ kind: 'set', spec: tcpSpec([unused], { name: 'ns/web', listen }) }]);
  await engine.drain({ kind: 'service', service: 'ns/web' });
  await refusedAt(0);
  const { counters } = engine.snapshot()[0] ?? {};
  t.match(counters, { rejectedDrained: 0, rejectedNoEndpoint: 1 }, 'usable for nothing');

  const endpoints = [{ ...local, external: false }, unused];
  await engine.apply([{ kind: 'endpoints', name: 'ns/web', endpoints }]);
  await refusedAt(1);
  t.match(counters, { rejectedDrained: 0, rejectedNoEndpoint: 2 }, 'usable for other traffic');
  await refusedAt(0);
  t.match(counters, { rejectedDrained: 1, rejectedNoEndpoint: 2 });
});

t.test('a drained endpoint is passed over', async (t) => {
  const engine = new DrainingEngine(createNodeEngine());
  t.teardown(() => engine.destroy());
  const [a, b] = [await namedServer(t, 'a'), await namedServer(t, 'b')];
  await engine.apply([
    { kind: 'set', spec: tcpSpec([a.endpoint, b.endpoint], { name: 'ns/web' }) },
  ]);
  const status = engine.snapshot()[0]?.listeners[0];
  const port = status?.state === 'listening' ? status.boundPort : 0;
  await engine.drain({ kind: 'endpoint', endpoint: `127.0.0.1:${a.port}` });
  for (let count = 0; count < 6; count += 1) t.equal(await request(t, port), 'b');
});
