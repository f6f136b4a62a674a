import t from 'tap';
import { runScrape } from '../../bench/scrape.ts';

t.test('the benchmark of scrapes runs with every engine that works here', async (t) => {
  const lines: string[] = [];
  await runScrape((line) => lines.push(line), { servicePorts: 50, scrapes: 2 });
  const [, node = ''] = lines;
  t.match(node, /^engine node +\d\.\d MB in \d+ ms \(median\), longest turn \d+ ms/);
});
