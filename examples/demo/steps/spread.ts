import { get } from '../../support/http.ts';
import { openUdpClient } from '../../support/udp.ts';
import { SHOP } from '../scene.ts';
import { counts, tally } from '../screen.ts';
import { whoAnswered, type Step } from './step.ts';

/** Whether every one of `parts` got the same, and there are as many as that. */
function isEven(names: readonly string[], parts: number): boolean {
  const numbers = [...tally(names).values()];
  return numbers.length === parts && numbers.every((number) => number === names.length / parts);
}

export const spreadTcp: Step = {
  title: 'Connections go round the endpoints of a service',
  async run({ ports }) {
    const names: string[] = [];
    const url = `http://${SHOP}:${ports.http}/`;
    for (let i = 0; i < 30; i += 1) names.push(whoAnswered((await get(url)).body));
    return {
      lines: [`30 requests to ${url}`, counts(names)],
      ok: isEven(names, 3),
      verdict: 'each endpoint answered 10 times',
    };
  },
};

export const spreadUdp: Step = {
  title: 'UDP clients do too, and each stays with its endpoint',
  async run({ ports }) {
    const perClient: string[] = [];
    let changes = 0;
    for (let i = 0; i < 12; i += 1) {
      const client = await openUdpClient(SHOP, ports.echo);
      const names: string[] = [];
      for (let n = 0; n < 5; n += 1) names.push(whoAnswered(await client.ask(`hello ${n}`)));
      client.close();
      changes += tally(names).size - 1;
      perClient.push(names[0] ?? '');
    }
    return {
      lines: [
        `12 clients with 5 datagrams each to ${SHOP}:${ports.echo}/UDP`,
        `clients: ${counts(perClient)}`,
      ],
      ok: isEven(perClient, 3) && changes === 0,
      verdict: `each endpoint got 4 clients; changes of endpoint within a client: ${changes}`,
    };
  },
};
