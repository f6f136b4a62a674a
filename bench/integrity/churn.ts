/** Endpoints are killed and come back, again and again, under a load of new connections. */
import { ANSWER } from '../peers/greeter-answer.ts';
import type { Check } from './check.ts';
import { visit, type Visit } from './churn/client.ts';
import { openChurnScene } from './churn/scene.ts';
import { evaluate, readProxyLog, type Verdict } from './churn/verdict.ts';

const CLIENTS = 16;
/** One kill for so many connections, and at least some. */
const CONNECTIONS_PER_KILL = 400;
const LEAST_KILLS = 3;

/**
 * Every connection that fails is matched with the endpoint that it was relayed to. It may only have
 * been cut together with an endpoint that was killed; a connection that no endpoint had taken has to be
 * served, since two of three are alive at any time.
 */
export const churn: Check = async (_scene, { connections }) => {
  const scene = await openChurnScene();
  try {
    const kills = Math.max(LEAST_KILLS, Math.floor(connections / CONNECTIONS_PER_KILL));
    const cut: Visit[] = [];
    let begun = 0;
    const killing = { over: false };
    const client = async (): Promise<void> => {
      while (begun < connections || !killing.over) {
        begun += 1;
        const from = `127.${79 + (begun >> 16)}.${(begun >> 8) & 255}.${begun & 255}`;
        const ended = await visit(scene.target, from, begun % 2 === 0 ? 'asks' : 'waits', ANSWER);
        if (!ended.served) cut.push(ended);
      }
    };
    const killer = async (): Promise<void> => {
      for (let killed = 0; killed < kills; killed += 1) await scene.killNext();
      killing.over = true;
    };
    await Promise.all([killer(), ...Array.from({ length: CLIENTS }, client)]);

    const lives = scene.lives();
    const { clients, rescued } = readProxyLog(scene.proxyLog());
    const count: Record<Verdict, number> = { greeted: 0, accepted: 0, backlog: 0, failed: 0 };
    let silent = 0;
    let firstFailure = '';
    for (const failure of cut) {
      const { verdict, why } = evaluate(failure, clients.get(failure.from), lives);
      count[verdict] += 1;
      if (verdict === 'backlog' && failure.manner === 'waits') silent += 1;
      if (verdict === 'failed' && firstFailure === '') firstFailure = ` (${why})`;
    }
    return {
      ok: count.failed === 0,
      text:
        `endpoints killed ${kills} times under load: ${begun} connections; cut with their endpoint: ` +
        `${count.greeted} that it had greeted, ${count.accepted} that it had accepted, ` +
        `${count.backlog} in its backlog (${silent} of them before they had sent anything); ` +
        `saved by another endpoint: ${rescued}; ` +
        `failed though one was alive: ${count.failed}${firstFailure}`,
    };
  } finally {
    await scene.close();
  }
};
