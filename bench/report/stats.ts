/** The middle of several measurements, and how far they are apart. */
export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly samples: number;
}

/** Undefined when there is no sample. */
export function summarize(samples: readonly number[]): Summary | undefined {
  const sorted = samples.toSorted((a, b) => a - b);
  const [min, max] = [sorted[0], sorted.at(-1)];
  if (min === undefined || max === undefined) return undefined;
  const upper = sorted[Math.floor(sorted.length / 2)] ?? max;
  const lower = sorted[Math.floor((sorted.length - 1) / 2)] ?? min;
  return { median: (lower + upper) / 2, min, max, samples: sorted.length };
}

/** Three digits that count: `0.359`, `35.9`, `359`. */
export function threeDigits(value: number): string {
  if (value === 0) return '0';
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 4));
}

/** The median, and in brackets the lowest and the highest one if there are several; empty without a sample. */
export function withSpread(summary: Summary | undefined, factor = 1): string {
  if (summary === undefined) return '';
  const [median, min, max] = [summary.median, summary.min, summary.max].map((value) =>
    threeDigits(value * factor),
  );
  return summary.samples === 1 ? `${median}` : `${median} (${min}-${max})`;
}
