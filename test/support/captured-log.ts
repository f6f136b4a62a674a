import { createLog, type LogFormat } from '../../src/observe/log.ts';

/** One line of the JSON log. */
export type LogLine = Record<string, unknown> & { level: string; msg: string };

/** A log that keeps its lines: `raw` as they were written, `lines` parsed; only for the JSON format. */
export async function captureLog(verbosity = 0, format: LogFormat = 'json') {
  const raw: string[] = [];
  const log = await createLog({ format, verbosity, write: (line) => raw.push(line) });
  const lines = (): LogLine[] => raw.map((line) => JSON.parse(line) as LogLine);
  return { log, raw, lines, messages: () => lines().map(({ msg }) => msg) };
}
