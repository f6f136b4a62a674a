import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse, Outcome, Size } from '../scenario.ts';
import type { Stage } from '../stage.ts';

/** Connections that are each some lines of the log with -v=4. */
async function chatter(stage: Stage, size: Size): Promise<Outcome> {
  const place = await stage.expose(stage.target.tcp, [stage.place.endpointIp]);
  const rounds = size.pick(4, 40);
  for (let round = 0; round < rounds; round += 1) {
    const clients = await crowd(100, place, (socket) => socket.end('x'));
    destroyAll(clients);
  }
  return { did: `${rounds * 100} connections with -v=4` };
}

export const logUnread: Abuse = {
  name: 'log-unread',
  title: 'A log without a reader',
  engines: ['node'],
  stage: () => ({ log: 'unread', args: ['-v=4'] }),
  run: chatter,
};

export const logDiskFull: Abuse = {
  name: 'log-disk-full',
  short: false,
  title: 'A log on a full disk',
  engines: ['node'],
  stage: () => ({ log: '/dev/full', args: ['-v=4'] }),
  run: chatter,
};
