// java Verify.java SECRET ID TIMESTAMP SIGNATURE < body
import static java.nio.charset.StandardCharsets.UTF_8;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Verify {
    static final long TOLERANCE = 5 * 60; // seconds

    /** Whether the gateway that knows the secret sent the body, and not long ago. */
    static boolean verify(String secret, String id, String timestamp, String signature, byte[] body)
            throws GeneralSecurityException {
        if (!timestamp.matches("\\d{1,18}")) {
            return false;
        }
        if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp)) > TOLERANCE) {
            return false;
        }
        byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(UTF_8));
        byte[] sum = mac.doFinal(body);
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(sum)).getBytes(UTF_8);
        // While a secret is being rotated there are several, with spaces between.
        for (String candidate : signature.split(" ")) {
            if (MessageDigest.isEqual(candidate.getBytes(UTF_8), expected)) {
                return true;
            }
        }
        return false;
    }

    public static void main(String[] args) throws Exception {
        boolean genuine = verify(args[0], args[1], args[2], args[3], System.in.readAllBytes());
        System.exit(genuine ? 0 : 1);
    }
}
