import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { crowd, destroyAll, pagesOf, unanswered } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

/** Clients that send a byte now and then, or nothing; others have to be answered all the same. */
export const slowHttp: Abuse = {
  name: 'slow-http',
  title: 'HTTP: silent clients and slow headers, on every port',
  engines: ['node'],
  async run(stage, size) {
    const pages = pagesOf(stage.pages);
    const count = size.pick(100, 300);
    const slow: Socket[] = [];
    for (const { place } of pages) slow.push(...(await crowd(count, place)));
    const drip = setInterval(() => {
      for (const [index, socket] of slow.entries()) {
        if (index % 2 === 0 && socket.writable) socket.write('G');
      }
    }, 500);
    const mistakes: string[] = [];
    const rounds = size.pick(2, 8);
    for (let round = 0; round < rounds; round += 1) {
      mistakes.push(...(await unanswered(pages)));
      await wait(size.pick(200, 1000));
    }
    clearInterval(drip);
    destroyAll(slow);
    return {
      did: `${count} such clients on each of 4 ports, ${rounds * pages.length} others`,
      mistakes,
    };
  },
};
