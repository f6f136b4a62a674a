import { get } from '../../support/http.ts';
import { SHOP } from '../scene.ts';
import { counts } from '../screen.ts';
import { whoAnswered, type Step } from './step.ts';

const BEFORE = 100;
const AFTER = 300;
const CLIENTS = 8;

export const kill: Step = {
  title: 'An endpoint is killed in the middle of the load',
  async run({ ports, endpoints }) {
    const url = `http://${SHOP}:${ports.http}/`;
    let begun = 0;
    let killed = false;
    let failedBefore = 0;
    const failures: string[] = [];
    const names: string[] = [];
    const client = async (): Promise<void> => {
      while (begun < BEFORE + AFTER) {
        begun += 1;
        if (begun === BEFORE + 1) {
          endpoints.birch.kill();
          killed = true;
        }
        const afterKill = killed;
        try {
          const name = whoAnswered((await get(url)).body);
          if (afterKill) names.push(name);
        } catch (error) {
          if (afterKill) failures.push(String(error));
          else failedBefore += 1;
        }
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    return {
      lines: [
        `${BEFORE + AFTER} requests, ${CLIENTS} at a time; birch is killed after ${BEFORE}`,
        `cut in flight with birch: ${failedBefore}`,
        `begun after that: ${counts(names)}`,
        ...failures.slice(0, 3),
      ],
      ok: failures.length === 0 && names.length === AFTER && !names.includes('birch'),
      verdict: `${AFTER} new connections after the kill, ${failures.length} failed, though birch is still in the file`,
    };
  },
};
