/** The program is restarted under load with another engine, or with another number of workers. */
import t from 'tap';
import { CrashBreaker } from '../../src/proxysocket/linux/breaker.ts';
import { changingRestarts, handoverRig } from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';

// Runs that other tests have killed are no reason to do without the engine.
t.before(() => new CrashBreaker().lasted());

const CHAINS: Readonly<Record<string, readonly string[]>> = {
  'more workers, then fewer': ['linux 1', 'linux 2', 'linux 1'],
  'more workers of Node’s sockets, then fewer': ['node 1', 'node 2', 'node 1'],
  'the other engine, with other workers': ['node 2', 'linux 2', 'node 1', 'linux 2'],
};

for (const [what, chain] of Object.entries(CHAINS)) {
  linuxTest(`${what}: no connection fails`, async (t) => {
    const rig = await handoverRig(t);
    const flags = chain.map((each) => {
      const [engine, workers] = each.split(' ');
      return [`--engine=${engine}`, `--workers=${workers}`];
    });
    await changingRestarts(t, rig, rig.port, flags);
  });
}
