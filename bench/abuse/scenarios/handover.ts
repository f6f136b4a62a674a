import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { until } from '../../../examples/support/until.ts';
import { ceaseless } from '../../../test/support/handover-rig.ts';
import type { Proxy } from '../proxy.ts';
import type { Abuse } from '../scenario.ts';
import type { Stage, StageOptions } from '../stage.ts';

const socketOf = (stage: Stage): string => join(stage.folder, 'handover');

/** The file of the socket, which every process that takes over replaces; 0: there is none. */
function owner(stage: Stage): number {
  return statSync(socketOf(stage), { throwIfNoEntry: false })?.ino ?? 0;
}

const withSocket = (stage: Stage): StageOptions => ({
  args: [`--handover-socket=${socketOf(stage)}`, '--drain-timeout=60s'],
});

/** The processes that were ready to serve, in their common log. */
function countReady(stage: Stage): number {
  const log = readFileSync(join(stage.folder, 'log'), 'utf8');
  return log.split('The first complete state is in place').length - 1;
}

/** Starts new processes and resolves when one of them has the socket. */
async function launch(stage: Stage, count: number): Promise<Proxy[]> {
  const before = owner(stage);
  const proxies = Array.from({ length: count }, () => stage.launch());
  const isTaken = () => ![0, before].includes(owner(stage)) || undefined;
  await until('a new process takes over', isTaken);
  return proxies;
}

async function takeOver(stage: Stage): Promise<void> {
  for (const proxy of await launch(stage, 1)) stage.follow(proxy);
}

/** Connections without a pause while something happens; what came of those that failed. */
async function underLoad(stage: Stage, work: () => Promise<void>) {
  const stop = ceaseless(stage.target.host, stage.target.tcp, stage.target.udp);
  try {
    await work();
    await wait(500);
  } catch (error) {
    await stop();
    throw error;
  }
  const { ok, failed } = await stop();
  const mistakes = Object.entries(failed).map(([how, count]) => `${count} connections: ${how}`);
  return { ok, mistakes };
}

export const handover: Abuse = {
  name: 'handover',
  title: 'Restarts under load',
  stage: withSocket,
  async run(stage, size) {
    const restarts = size.pick(1, 4);
    const { ok, mistakes } = await underLoad(stage, async () => {
      for (let count = 0; count < restarts; count += 1) await takeOver(stage);
    });
    return { did: `${restarts} restarts under ${ok} connections`, mistakes };
  },
};

/** Both ask the process that runs; afterwards the next restart has to find the one that serves. */
export const twoSuccessors: Abuse = {
  name: 'two-successors',
  title: 'Two new processes at the same time, then a restart',
  stage: withSocket,
  async run(stage, size) {
    const rounds = size.pick(1, 2);
    const { ok, mistakes } = await underLoad(stage, async () => {
      for (let round = 0; round < rounds; round += 1) {
        const before = countReady(stage);
        const both = await launch(stage, 2);
        await until('both are ready or have ended', () => {
          const ended = both.filter(({ end }) => end !== undefined);
          return countReady(stage) - before + ended.length >= both.length || undefined;
        });
        for (const proxy of both) if (proxy.end === undefined) stage.follow(proxy);
        await takeOver(stage);
      }
    });
    return { did: `${rounds} times, under ${ok} connections`, mistakes };
  },
};

/** It leaves the files of its sockets behind. */
export const killed: Abuse = {
  name: 'kill-9',
  short: false,
  title: 'Killed under load and started again',
  allows: 'cuts',
  stage: withSocket,
  async run(stage, size) {
    const times = size.pick(1, 3);
    for (let count = 0; count < times; count += 1) {
      stage.proxy.signal('SIGKILL');
      await stage.proxy.ended;
      await stage.start();
      await stage.serves();
    }
    return { did: `${times} times` };
  },
};

/** The process that runs has to serve as if there had been no call. */
export const killedSuccessor: Abuse = {
  name: 'killed-successor',
  short: false,
  title: 'New processes that are killed before they have taken over',
  stage: withSocket,
  async run(stage, size) {
    const times = size.pick(2, 10);
    for (let count = 0; count < times; count += 1) {
      const proxy = stage.launch();
      await wait(150 + Math.random() * 250);
      proxy.signal('SIGKILL');
      await proxy.ended;
    }
    await takeOver(stage);
    return { did: `${times} of them, then one that took over` };
  },
};
