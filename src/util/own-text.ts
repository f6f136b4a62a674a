/**
 * A copy of the text with its own memory. V8 represents a substring as a slice of the whole string, so a few
 * long-lived characters could keep megabytes alive.
 */
export function ownText(part: string): string {
  // Concatenating and slicing makes V8 copy it.
  return ` ${part}`.slice(1);
}
