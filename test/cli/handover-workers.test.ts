/** The program is restarted under load with another engine, or with another number of workers. */
import { changingRestarts, handoverRig } from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';

linuxTest('more and fewer workers, and the other engine: no connection fails', async (t) => {
  const rig = await handoverRig(t);
  const chain = ['linux 1', 'linux 2', 'node 1', 'linux 3', 'linux 1'].map((each) => {
    const [engine, workers] = each.split(' ');
    return [`--engine=${engine}`, `--workers=${workers}`];
  });
  await changingRestarts(t, rig, rig.port, chain);
});
