import * as fc from 'fast-check';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import { ClientTable, lossCause, openErrorCause } from '../../../src/proxysocket/udp/transport.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { MAX_REFUSED_CLIENTS, Refusals } from '../../../src/proxysocket/udp/refusals.ts';
import { UdpRig } from '../../support/udp-rig.ts';
import { setEnvironmentData } from 'node:worker_threads';
import { PreviousFlows, keepPreviousFlows } from '../../../src/proxysocket/udp/previous-flows.ts';
import t from 'tap';

/** The tables that sessions are found in. */

const BOUNDED = { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false };

t.test('property: a client table is a map by address and port', async (t) => {
  const client = fc.record({
    address: fc.constantFrom('127.0.0.1', '127.0.0.2', '::1'),
    port: fc.integer({ min: 1, max: 3 }),
  });
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), client), { maxLength: 60 }), (steps) => {
      const table = new ClientTable<{ client: { address: string; port: number } }>();
      const model = new Map<string, { client: { address: string; port: number } }>();
      for (const [add, at] of steps) {
        const key = `${at.address} ${at.port}`;
        const value = { client: at };
        if (add) {
          table.add(value);
          model.set(key, value);
        } else {
          table.delete(value);
          const there = model.get(key);
          if (there !== undefined && table.get(at.address, at.port) !== there) {
            throw new Error('another value of the same client was deleted');
          }
          if (there !== undefined) table.delete(there);
          model.delete(key);
        }
        if (table.get(at.address, at.port) !== model.get(key)) throw new Error(key);
        if (new Set(table.values()).size !== model.size) throw new Error('size');
      }
    }),
    BOUNDED,
  );
  t.pass();
});

const WINDOW = 30_000;

function owner(name = 'test/dns:dns'): ServicePort {
  const { balancer } = new UdpRig({ teardown: () => undefined }).service([]);
  return { name, protocol: 'UDP', balancer, counters: newCounters(), udpIdleTimeoutMs: WINDOW };
}

t.test('a persistent client stays one refusal; a returning one is new', async (t) => {
  const clock = new FakeClock();
  const refusals = new Refusals(clock, WINDOW);
  const one = owner();
  const client = { address: '127.0.0.1', port: 5000 };
  for (let asked = 0; asked < 20; asked += 1) {
    refusals.refuse(one, client, 'no-endpoint');
    clock.advance(WINDOW / 3);
  }
  t.equal(one.counters.rejectedNoEndpoint, 1);
  clock.advance(2 * WINDOW);
  refusals.refuse(one, client, 'no-endpoint');
  t.equal(one.counters.rejectedNoEndpoint, 2);
});

t.test('ports, addresses and service ports are distinguished', async (t) => {
  const refusals = new Refusals(new FakeClock(), WINDOW);
  const [one, two] = [owner('a/a:a'), owner('b/b:b')];
  for (const address of ['127.0.0.1', '127.0.0.2']) {
    for (const port of [1000, 1001]) {
      refusals.refuse(one, { address, port }, 'no-endpoint');
      refusals.refuse(two, { address, port }, 'no-endpoint');
    }
  }
  t.equal(one.counters.rejectedNoEndpoint, 4);
  t.equal(two.counters.rejectedNoEndpoint, 4);
});

t.test('a flood from many ports does not grow the memory of refusals', async (t) => {
  const refusals = new Refusals(new FakeClock(), WINDOW);
  const one = owner();
  const flood = 3 * MAX_REFUSED_CLIENTS;
  const refuse = (port: number): void => {
    refusals.refuse(one, { address: '127.0.0.1', port }, 'no-endpoint');
  };
  for (let port = 1; port <= flood; port += 1) refuse(port);
  t.equal(one.counters.rejectedNoEndpoint, flood);
  refuse(flood);
  t.equal(one.counters.rejectedNoEndpoint, flood, 'the latest are remembered');
  refuse(1);
  t.equal(one.counters.rejectedNoEndpoint, flood + 1, 'the first are forgotten');
});

/** Which endpoints UDP clients had in the process before this one. */

const IDLE_MS = 30_000;
const CLIENT = { address: '10.0.0.9', port: 5000 };
const CLIENT6 = { address: 'fd00::9', port: 5000 };

function kept(): { readonly clock: FakeClock; readonly flows: PreviousFlows } {
  keepPreviousFlows([
    { servicePort: 'd/dns:dns', client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' },
    { servicePort: 'd/dns:dns', client: '[fd00::9]:5000', endpoint: '10.1.0.2:53' },
  ]);
  const clock = new FakeClock();
  return { clock, flows: new PreviousFlows(clock, IDLE_MS) };
}

t.afterEach(() => setEnvironmentData('kpng-userspace previous UDP flows', undefined));

t.test('each client is reported once, and for its service port only', async (t) => {
  const { flows } = kept();
  t.equal(flows.take('d/other:dns', CLIENT), undefined);
  t.equal(flows.take('d/dns:dns', { ...CLIENT, port: 5001 }), undefined);
  t.equal(flows.take('d/dns:dns', CLIENT), '10.1.0.1:53');
  t.equal(flows.take('d/dns:dns', CLIENT), undefined, 'its next session begins again');
  t.equal(flows.take('d/dns:dns', CLIENT6), '10.1.0.2:53');
});

t.test('they count for as long as a session would have been idle', async (t) => {
  const { clock, flows } = kept();
  clock.advance(10 * IDLE_MS);
  t.equal(flows.take('d/dns:dns', CLIENT6), '10.1.0.2:53', 'no one has asked before');
  clock.advance(IDLE_MS + 1);
  t.equal(flows.take('d/dns:dns', CLIENT), undefined);
});

function systemError(code: string): Error {
  return Object.assign(new Error(`send ${code}`), { code });
}

t.test('errors caused by ICMP messages blame the endpoint', async (t) => {
  for (const [code, cause] of [
    ['ECONNREFUSED', 'refused'],
    ['ECONNRESET', 'refused'],
    ['EHOSTUNREACH', 'unreachable'],
    ['ENETUNREACH', 'unreachable'],
  ] as const) {
    t.equal(lossCause(systemError(code)), cause, code);
    t.equal(openErrorCause(systemError(code)), cause, code);
  }
});

t.test('what concerns one datagram leaves the session alone', async (t) => {
  for (const code of ['EMSGSIZE', 'ENOBUFS', 'EAGAIN', 'EPERM', 'EACCES', 'ENOMEM', 'EINVAL']) {
    t.equal(lossCause(systemError(code)), undefined, code);
  }
  t.equal(lossCause(new Error('without a code')), undefined);
});

t.test(
  'a socket that is unavailable is a limit of the process, or the fault of the endpoint',
  async (t) => {
    for (const code of ['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'EADDRINUSE']) {
      t.equal(openErrorCause(systemError(code)), 'limit', code);
    }
    for (const error of [systemError('EINVAL'), systemError('EACCES'), new Error('no code')]) {
      t.equal(openErrorCause(error), 'other');
    }
  },
);
