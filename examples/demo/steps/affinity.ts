import { get } from '../../support/http.ts';
import { TILL } from '../scene.ts';
import { counts, tally } from '../screen.ts';
import { whoAnswered, type Step } from './step.ts';

export const affinity: Step = {
  title: 'With ClientIP affinity a client stays with one endpoint',
  async run({ ports }) {
    const url = `http://${TILL}:${ports.http}/`;
    const clients = ['127.77.9.1', '127.77.9.2', '127.77.9.3'];
    const answers = new Map<string, string[]>(clients.map((client) => [client, []]));
    for (let i = 0; i < 10; i += 1) {
      for (const client of clients) {
        answers.get(client)?.push(whoAnswered((await get(url, { from: client })).body));
      }
    }
    const sets = [...answers.values()];
    const used = new Set(sets.flat());
    return {
      lines: [
        `3 clients with 10 requests each, by turns, to ${url}`,
        ...[...answers].map(([client, names]) => `from ${client}: ${counts(names)}`),
      ],
      ok: sets.every((names) => tally(names).size === 1) && used.size === 3,
      verdict: 'three clients, three endpoints, and none moved',
    };
  },
};
