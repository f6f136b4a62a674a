/** Steps of a long test, reported as they go. */
import { inspect } from 'node:util';

export class Steps {
  passed = 0;
  failed = 0;
  readonly #begin = performance.now();

  /** One step. What fails is reported, and ends the steps that build on it only where these say so. */
  async step(name: string, work: () => Promise<string | undefined | void>): Promise<boolean> {
    const begin = performance.now();
    try {
      const note = await work();
      this.passed += 1;
      this.say(`    ok  ${name.padEnd(76)} ${seconds(performance.now() - begin)}`);
      if (note !== undefined) this.say(note.trimEnd().replaceAll(/^/gm, ' '.repeat(12)));
      return true;
    } catch (error) {
      this.failed += 1;
      this.say(`  FAIL  ${name.padEnd(76)} ${seconds(performance.now() - begin)}`);
      this.say(
        (error instanceof Error ? (error.stack ?? '') : inspect(error)).replaceAll(
          /^/gm,
          '        ',
        ),
      );
      return false;
    }
  }

  /** The closing line. */
  end(): void {
    this.say(`\nin ${seconds(performance.now() - this.#begin).trim()}`);
    this.say(`${this.passed} passed, ${this.failed} failed, 0 skipped`);
  }

  say(line: string): void {
    process.stdout.write(`${line}\n`);
  }
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`.padStart(7);
}
