;; y = W x + b with 128-bit SIMD, in the memory that the page gives. product.js holds it compiled:
;;   npx -p wabt wat2wasm product.wat -o - | base64 -w 0
;; All pointers count bytes. W has `rows` rows of `columns` numbers; `b` is 0 if there is no bias.
(module
  (import "page" "memory" (memory 1))
  (func (export "product")
    (param $w i32) (param $b i32) (param $x i32) (param $y i32) (param $rows i32) (param $columns i32)
    (local $at i32) (local $wide i32) (local $last i32) (local $end i32) (local $sum f32)
    (local $p v128) (local $q v128) (local $r v128) (local $s v128)
    (local.set $end (i32.add (local.get $y) (i32.shl (local.get $rows) (i32.const 2))))
    (local.set $last (i32.add (local.get $x) (i32.shl (local.get $columns) (i32.const 2))))
    ;; where the last sixteen end; what is left is added one by one
    (local.set $wide (i32.add (local.get $x) (i32.shl (i32.and (local.get $columns) (i32.const -16)) (i32.const 2))))
    (loop $row
      (local.set $at (local.get $x))
      (local.set $sum (f32.const 0))
      (if (local.get $b) (then
        (local.set $sum (f32.load (local.get $b)))
        (local.set $b (i32.add (local.get $b) (i32.const 4)))))
      (if (i32.lt_u (local.get $at) (local.get $wide)) (then
        (local.set $p (v128.const f32x4 0 0 0 0)) (local.set $q (local.get $p))
        (local.set $r (local.get $p)) (local.set $s (local.get $p))
        (loop $sixteen
          (local.set $p (f32x4.add (local.get $p) (f32x4.mul (v128.load (local.get $w)) (v128.load (local.get $at)))))
          (local.set $q (f32x4.add (local.get $q) (f32x4.mul (v128.load offset=16 (local.get $w)) (v128.load offset=16 (local.get $at)))))
          (local.set $r (f32x4.add (local.get $r) (f32x4.mul (v128.load offset=32 (local.get $w)) (v128.load offset=32 (local.get $at)))))
          (local.set $s (f32x4.add (local.get $s) (f32x4.mul (v128.load offset=48 (local.get $w)) (v128.load offset=48 (local.get $at)))))
          (local.set $w (i32.add (local.get $w) (i32.const 64)))
          (local.set $at (i32.add (local.get $at) (i32.const 64)))
          (br_if $sixteen (i32.lt_u (local.get $at) (local.get $wide))))
        (local.set $p (f32x4.add (f32x4.add (local.get $p) (local.get $q)) (f32x4.add (local.get $r) (local.get $s))))
        (local.set $sum (f32.add (local.get $sum) (f32.add
          (f32.add (f32x4.extract_lane 0 (local.get $p)) (f32x4.extract_lane 1 (local.get $p)))
          (f32.add (f32x4.extract_lane 2 (local.get $p)) (f32x4.extract_lane 3 (local.get $p))))))))
      (if (i32.lt_u (local.get $at) (local.get $last)) (then
        (loop $one
          (local.set $sum (f32.add (local.get $sum) (f32.mul (f32.load (local.get $w)) (f32.load (local.get $at)))))
          (local.set $w (i32.add (local.get $w) (i32.const 4)))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (br_if $one (i32.lt_u (local.get $at) (local.get $last))))))
      (f32.store (local.get $y) (local.get $sum))
      (local.set $y (i32.add (local.get $y) (i32.const 4)))
      (br_if $row (i32.lt_u (local.get $y) (local.get $end))))))
