import t from 'tap';
import { parseLargeItem } from '../../src/file/large-item.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { parseStateFile, type ParseResult } from '../../src/file/parse.ts';
import { problemsOf, stateOf } from '../support/state-file.ts';

interface Pod {
  podname: string;
  endpoint: { ips: { v4: string[] } };
  servicename?: string;
}

const pods = (count: number): Pod[] =>
  Array.from({ length: count }, (_, n) => ({
    podname: `pod-${n}`,
    endpoint: { ips: { v4: [`10.1.${n >> 8}.${n & 255}`] } },
  }));

/** A file with a service before the large one. */
const FORMS = {
  json: (endpoints: readonly Pod[]) =>
    JSON.stringify(
      { services: [{ service: { name: 'first' } }, { service: { name: 'web' }, endpoints }] },
      undefined,
      1,
    ),
  block: (endpoints: readonly Pod[]) =>
    [
      'services:',
      '- service: {name: first}',
      '- service:',
      '    name: web',
      '  endpoints:',
      ...endpoints.map(
        ({ podname, endpoint, servicename }) =>
          `  - podname: ${podname}\n` +
          (servicename === undefined ? '' : `    servicename: ${servicename}\n`) +
          `    endpoint:\n      ips:\n        v4: [${endpoint.ips.v4.join(', ')}]`,
      ),
      '- service: {name: last}',
      '',
    ].join('\n'),
};

function batchesOf(result: ParseResult): unknown[] {
  const items = [...result.memory.items.values()];
  return items.flatMap(({ batches }) => Array.from(batches?.values() ?? []));
}

for (const [form, write] of Object.entries(FORMS)) {
  t.test(`${form}: a service with very many endpoints is read in batches`, async (t) => {
    const all = pods(5000);
    const first = parseStateFile(write(all));
    t.ok(batchesOf(first).length > 10, `${batchesOf(first).length} batches`);
    const { endpoints = [] } = stateOf(write(all)).services.get('default/web') ?? {};
    t.strictSame(
      endpoints.map(({ podName }) => podName),
      all.map(({ podname }) => podname),
    );
    t.strictSame(stateOf(write(all)), stateOf(write(all), { largeItem: Infinity }));
  });

  t.test(`${form}: one more endpoint changes one batch`, async (t) => {
    const all = pods(5000);
    const [more] = pods(6000).slice(5500, 5501);
    if (more === undefined) throw new Error('there is one');
    const first = parseStateFile(write(all));
    const second = parseStateFile(write(all.toSpliced(2500, 0, more)), { memory: first.memory });
    const values = (result: ParseResult) =>
      (batchesOf(result) as { values: unknown }[]).map((batch) => batch.values);
    const known = new Set(values(first));
    t.ok(values(second).filter((each) => !known.has(each)).length <= 2);
    if (!second.ok) throw new Error('it is valid');
    t.equal(second.state.services.get('default/web')?.endpoints[2500]?.podName, 'pod-5500');
  });

  t.test(`${form}: what is wrong is found where it is`, async (t) => {
    const all = pods(2000);
    for (const at of [0, 777, 1999]) {
      const pod = all[at];
      if (pod !== undefined) pod.endpoint.ips.v4 = ['10.1.1'];
    }
    const text = write(all);
    const problems = problemsOf(text);
    t.equal(problems.length, 3);
    t.strictSame(problems, problemsOf(text, { largeItem: Infinity }));
    t.match(
      problems[1],
      /services\[1\]\.endpoints\[777\]\.endpoint\.ips\.v4\[0\]: .* is not an IPv4 address/,
    );
    const line = Number(problems[1]?.split(':')[0]);
    t.match(
      text
        .split('\n')
        .slice(line - 2, line + 1)
        .join(),
      /10\.1\.1[^.]/,
    );
  });

  t.test(`${form}: warnings, too`, async (t) => {
    const all = pods(2000);
    const pod = all[1234];
    if (pod !== undefined) pod.servicename = 'other';
    const warnings = (largeItem: number) => parseStateFile(write(all), { largeItem }).warnings;
    t.match(warnings(0), {
      total: 1,
      first: [{ path: 'services[1].endpoints[1234].servicename' }],
    });
    t.strictSame(warnings(0), warnings(Infinity));
  });
}

t.test('what cannot be cut is read as a whole, or not at all if it is too large', async (t) => {
  const uncut = {
    'endpoints in flow style': '- service: {name: web}\n  endpoints: [{podname: a}]\n',
    'an alias': '- service: {name: web}\n  endpoints:\n  - &a {podname: a}\n  - *a\n',
    'no list': '- service: {name: web}\n  endpoints:\n    podname: a\n',
    'the key further in': '- service:\n    endpoints:\n    - a\n',
    'a dash alone': '-\n  service: {name: web}\n  endpoints:\n  - podname: a\n',
  };
  for (const [name, text] of Object.entries(uncut)) {
    t.equal(parseLargeItem(text, 'block', 20, new Map()), undefined, name);
  }
  const limits = { ...DEFAULT_FILE_LIMITS, maxTreeChars: 50 };
  t.strictSame(
    problemsOf(`services:\n${uncut['endpoints in flow style']}`, { limits, largeItem: 0 }),
    [
      '2:1: services[0]: a service of more than 50 characters must have its endpoints in block style',
    ],
  );
  const forms = 'must be JSON, or have its services in block style and no aliases';
  const list = '{service: {name: a}}, {service: {name: b}}, {service: {name: c}}';
  t.strictSame(problemsOf(`services: [${list}]\n`, { limits }), [
    `1:1: a file of more than 50 characters ${forms}`,
  ]);
  t.match(problemsOf(`{"services": [${list.replaceAll(/[a-z]+/g, '"$&"')},]}\n`, { limits }), [
    /^1:\d+: no JSON: /,
  ]);
});

t.test('of a text that is parsed again and again no former one is kept', async (t) => {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const names = Array.from({ length: 200 }, (_, n) => `a-service-with-a-long-name-${n}`);
  const padding = `# ${'x'.repeat(5000)}\n`;
  let result: ParseResult | undefined;
  const parse = (round: number): void => {
    const items = names.map((name, n) => {
      return `- service: {name: ${name}, labels: {round: round-and-round-${n < round ? 1 : 0}}}\n${padding}`;
    });
    // As from a file: not made of parts any more.
    const text = Buffer.from(`services:\n${items.join('')}`).toString();
    result = parseStateFile(text, { memory: result?.memory });
  };
  const used = (): number => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  parse(0);
  const before = used();
  for (let round = 1; round <= 100; round += 1) parse(round);
  t.equal(result?.parsedItems, 1);
  const grown = used() - before;
  // A hundred texts would be a hundred megabytes.
  t.ok(grown < 10_000_000, `grew by ${grown} bytes`);
});
