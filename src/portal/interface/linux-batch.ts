/** What `ip -force -batch -` says went wrong, by line. */
export interface BatchErrors {
  /** The message of each line that failed; lines count from 1. */
  readonly lines: ReadonlyMap<number, string>;
  /** What was said about no line: ip has stopped in the middle. */
  readonly rest: string;
}

const FAILED = /^Command failed .*:(\d+)$/;

/** Reads what `ip -force -batch -` has printed on its standard error. */
export function readBatchErrors(stderr: string): BatchErrors {
  const lines = new Map<number, string>();
  let said: string[] = [];
  for (const text of stderr.split('\n')) {
    const line = text.trim();
    if (line === '') continue;
    const [, number] = FAILED.exec(line) ?? [];
    if (number === undefined) {
      said.push(line);
      continue;
    }
    lines.set(Number(number), said.map((each) => plain(each)).join('; '));
    said = [];
  }
  return { lines, rest: said.map((each) => plain(each)).join('; ') };
}

/** The message without the words that ip puts before it. */
function plain(line: string): string {
  return line.replace(/^(?:Error: |RTNETLINK answers: )/, '');
}

/** `10.0.0.1/32` or `fd00::1/128`. */
export function asHostNetwork(address: string): string {
  return `${address}/${address.includes(':') ? 128 : 32}`;
}

/** The line that removes an address. */
export function removalOf(address: string, name: string): string {
  return `address delete ${asHostNetwork(address)} dev ${name}`;
}
