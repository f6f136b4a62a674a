import t, { type Test } from 'tap';
import { portalShared, type PortalShared } from '../../../src/portal/events.ts';
import { outlastRivals, type Rival } from '../../../src/portal/rules/rivals.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** Looks that find what the test says, and what is told meanwhile. */
function follow(t: Test, rivals: readonly Rival[]) {
  const here = { rivals, looks: 0 };
  const told: (string | undefined)[] = [];
  const listen = ({ error }: PortalShared) =>
    told.push(error === undefined ? undefined : `${error.code} ${error.message}`);
  portalShared.subscribe(listen);
  t.teardown(() => portalShared.unsubscribe(listen));
  const clock = new FakeClock();
  const closing = new AbortController();
  const end = outlastRivals({
    portal: 'nftables',
    look: async () => {
      here.looks += 1;
      return here.rivals;
    },
    signal: closing.signal,
    clock,
    random: () => 0.5,
  });
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await new Promise(setImmediate);
  };
  return { here, told, end, closing, pass };
}

const LEGACY: Rival = { what: 'the chains KUBE-* of iptables-legacy', pids: [4711] };

t.test('without rivals it looks once, and tells nothing', async (t) => {
  const { here, told, end } = follow(t, []);
  await end;
  t.equal(here.looks, 1);
  t.same(told, []);
});

t.test('names the process, once, and looks until it has ended', async (t) => {
  const { here, told, end, pass } = follow(t, [LEGACY]);
  await pass(0);
  t.match(told, [
    /^KPNG_PORTAL_SHARED process 4711 writes the chains KUBE-\* of iptables-legacy, for the same/,
  ]);
  await pass(2000);
  await pass(4000);
  t.equal(here.looks, 3);
  t.equal(told.length, 1, 'it is still the same one');
  here.rivals = [];
  await pass(8000);
  await end;
  t.same(told.slice(1), [undefined]);
});

t.test('tells of others that join, and of those that do not say who they are', async (t) => {
  const { here, told, pass, closing, end } = follow(t, [{ ...LEGACY, pids: [] }]);
  await pass(0);
  t.match(told, [/ another process writes the chains /]);
  here.rivals = [LEGACY, { what: 'the table', pids: [1, 2] }];
  await pass(2000);
  t.match(told.slice(1), [/ process 4711 writes .*; the processes 1 and 2 write the table,/]);
  closing.abort();
  await end;
});

t.test('ends at once when it is told to', async (t) => {
  const { here, closing, end, pass } = follow(t, [LEGACY]);
  await pass(0);
  closing.abort();
  await end;
  await pass(100_000);
  t.equal(here.looks, 1);
});
