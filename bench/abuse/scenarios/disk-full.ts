import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fullFolder, onFullDisk } from '../full-disk.ts';
import type { Abuse } from '../scenario.ts';

export const diskFull: Abuse = {
  name: 'disk-full',
  title: 'to-file on a full disk',
  short: false,
  engines: ['node'],
  needs: ['root', 'unshare', 'mount'],
  stage: (stage) => ({
    ...onFullDisk(stage.folder),
    sink: ['to-file', `--output=${join(fullFolder(stage.folder), 'state.yaml')}`],
    carries: false,
  }),
  async run(stage, size) {
    const changes = size.pick(5, 40);
    for (let change = 0; change < changes; change += 1) {
      stage.writeState({ ...stage.controlService(), name: `changed-${change}` });
      await wait(250);
    }
    return { did: `${changes} changes of the state` };
  },
};
