/**
 * `npm run demo`: the main job without a cluster and without root.
 *
 *     npm run demo               shows the tour and leaves the proxy running, until INT
 *     npm run demo -- --once     ends after the tour: 0, or 1 if anything was not as it should be;
 *                                2 for a wrong flag
 */
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { openScene, type Scene } from './scene.ts';
import {
  introduce,
  invite,
  print,
  printHeading,
  printLine,
  printStep,
  printVerdict,
} from './screen.ts';
import { STEPS } from './steps.ts';

/** Shows every step and returns how many were not as they should be. */
async function tour(scene: Scene, stop: AbortSignal): Promise<number> {
  let wrong = 0;
  for (const [index, step] of STEPS.entries()) {
    if (stop.aborted) break;
    printStep(index + 1, step.title);
    try {
      const finding = await step.run(scene);
      finding.lines.forEach(printLine);
      printVerdict(finding.ok, finding.verdict);
      if (!finding.ok) wrong += 1;
    } catch (error) {
      printVerdict(false, error instanceof Error ? error.message : String(error));
      wrong += 1;
    }
  }
  return wrong;
}

const USAGE = `npm run demo               a tour of what the proxy does, then the proxy runs on until Ctrl-C
npm run demo -- --once     only the tour; ends with 0, or 1 if anything was not as it should be`;

/** The flags; throws a TypeError for others. */
function readArgs() {
  const flag = { type: 'boolean', default: false } as const;
  return parseArgs({ options: { once: flag, help: flag } }).values;
}

/** Runs the demo and returns its exit code. */
async function main(args: ReturnType<typeof readArgs>): Promise<number> {
  const stop = new AbortController();
  // The first signal ends the demo in order, the second one at once.
  const onSignal = (): void => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGQUIT', onSignal);

  printHeading(
    'kpng-userspace: a Service proxy on this machine, without a cluster, without root\n',
  );
  const scene = await openScene();
  try {
    introduce(scene);
    const wrong = await tour(scene, stop.signal);
    if (!stop.signal.aborted) {
      print();
      printVerdict(wrong === 0, `${STEPS.length - wrong} of ${STEPS.length} as they should be`);
      if (wrong > 0) print(`\nthe proxy's log:\n${scene.proxy.log()}`);
    }
    if (!args.once && !stop.signal.aborted) {
      invite(scene);
      scene.proxy.follow((line) => print(`  ${line}`), stop.signal);
      await Promise.race([
        once(stop.signal, 'abort'),
        scene.proxy.ended.then((how) => print(`the proxy ${how}`)),
      ]);
    }
    return wrong === 0 ? 0 : 1;
  } finally {
    await scene.close();
  }
}

// The reader of the output has gone (`npm run demo | head`); the proxy ends with this process.
process.stdout.on('error', () => process.exit(1));
try {
  const args = readArgs();
  if (args.help) print(USAGE);
  else process.exitCode = await main(args);
} catch (error) {
  printVerdict(false, error instanceof Error ? error.message : String(error));
  if (error instanceof TypeError) print(USAGE);
  process.exitCode = error instanceof TypeError ? 2 : 1;
}
