import t from 'tap';
import { Outage } from '../../src/kube/outage.ts';
import { DEFAULT_BACKOFF } from '../../src/util/backoff.ts';
import { FakeClock } from '../support/fake-clock.ts';

function rig() {
  const clock = new FakeClock();
  const outage = new Outage(clock, { ...DEFAULT_BACKOFF, maxMs: 10_000 }, () => 0.5);
  const stop = new AbortController();
  let tries = 0;
  const ask = (): void => void outage.turn(stop.signal).then(() => (tries += 1));
  /** How many were let in since the last look. */
  const taken = async (): Promise<number> => {
    await new Promise(setImmediate);
    const since = tries;
    tries = 0;
    return since;
  };
  return { clock, outage, stop, ask, taken };
}

t.test('while the server is there nobody waits', async (t) => {
  const { outage, ask, taken } = rig();
  ask();
  ask();
  t.equal(await taken(), 2);
  t.notOk(outage.isDown);
});

t.test('while it is away one at a time is let in, after waits that grow', async (t) => {
  const { clock, outage, ask, taken } = rig();
  t.equal(outage.failed(), 1000);
  t.equal(outage.failed(), 1000, 'who was under way tells nothing new');
  for (let i = 0; i < 3; i += 1) ask();
  t.equal(await taken(), 0);
  clock.advance(999);
  t.equal(await taken(), 0);
  clock.advance(1);
  t.equal(await taken(), 1);
  clock.advance(60_000);
  t.equal(await taken(), 0, 'while it tries nobody else does');
  t.equal(outage.failed(), 1600);
  ask();
  clock.advance(1600);
  t.equal(await taken(), 1);
  let wait = 0;
  for (let i = 0; i < 10; i += 1) wait = outage.failed();
  t.equal(wait, 2560);
});

t.test('the first answer lets all go, and the next outage begins anew', async (t) => {
  const { clock, outage, ask, taken } = rig();
  outage.failed();
  for (let i = 0; i < 3; i += 1) ask();
  clock.advance(1000);
  t.equal(await taken(), 1);
  outage.answered();
  t.equal(await taken(), 2);
  t.notOk(outage.isDown);
  t.equal(outage.failed(), 1000);
});

t.test('who comes when the wait is over need not wait', async (t) => {
  const { clock, outage, ask, taken } = rig();
  outage.failed();
  clock.advance(5000);
  ask();
  ask();
  t.equal(await taken(), 1);
});

t.test('whoever waits is let go when everything ends', async (t) => {
  const { outage, stop, ask, taken } = rig();
  outage.failed();
  ask();
  ask();
  stop.abort();
  t.equal(await taken(), 2);
  ask();
  t.equal(await taken(), 1);
});
