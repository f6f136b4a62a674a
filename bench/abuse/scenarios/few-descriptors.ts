import { setTimeout as wait } from 'node:timers/promises';
import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

/** Twice as many clients as there are descriptors: they wait or are refused; existing connections continue. */
function fewDescriptors(limit: number): Abuse {
  return {
    name: `descriptors-${limit}`,
    title: `Descriptor exhaustion, ulimit ${limit}`,
    needs: ['prlimit'],
    short: limit < 1000,
    // Where there is no descriptor left, a new client is reset.
    allows: 'refusals',
    stage: () => ({
      inside: ['prlimit', `--nofile=${limit}:${limit}`],
      args: [`--reserved-descriptors=${limit / 4}`],
    }),
    async run(stage, size) {
      const { host, tcp: port } = stage.target;
      const rounds = size.pick(1, 2);
      for (let round = 0; round < rounds; round += 1) {
        // The control service has to stay free: these come in at another listener.
        const other = await stage.expose(port, [stage.place.endpointIp]);
        const clients = await crowd(limit * 2, { host: other.host, port: other.port });
        for (const client of clients) client.write('x');
        await wait(size.pick(300, 2000));
        destroyAll(clients);
        await wait(size.pick(300, 1000));
      }
      await stage.opens(host, port);
      return { did: `${rounds} times ${limit * 2} clients` };
    },
  };
}

export const fewDescriptors256 = fewDescriptors(256);
export const fewDescriptors1024 = fewDescriptors(1024);
