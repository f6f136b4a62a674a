/** The program is restarted under load with another engine, or with another number of workers. */
import { changingRestarts, handoverRig } from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';

const CHAINS: Readonly<Record<string, readonly string[]>> = {
  'more workers, then fewer': ['linux 1', 'linux 2', 'linux 1'],
  'the other engine, with other workers': ['node 1', 'linux 2', 'node 1', 'linux 3', 'linux 2'],
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
