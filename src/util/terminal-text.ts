/**
 * Writes out, as `\uXXXX`, what could end a line, move the cursor of a terminal or change the direction of text: control
 * and format characters, line and paragraph separators. Names come from the network.
 */
export function escapeControls(text: string): string {
  return escapeAll(text, CONTROLS);
}

/** Writes the matches of a global pattern as `\uXXXX`. */
export function escapeAll(text: string, pattern: RegExp): string {
  const escape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return text.replace(pattern, (found) => found.split('').map(escape).join(''));
}

/** The same for text with several lines; keeps the line breaks. */
export function escapeLines(text: string): string {
  return text.split('\n').map(escapeControls).join('\n');
}

/** Without the passwords of URLs: settings and errors are visible to more than those who may know them. */
export function hidePasswords(text: string): string {
  return text.replace(/(\/\/[^/:@\s]*):[^/@\s]*@/g, '$1:***@');
}

const CONTROLS = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;
